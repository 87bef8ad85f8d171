"""Give damaged inputs to every command: ``python -m attack.whole --minutes 10``.

::

    an input of a target ─ read ─▶ a new profile, one of many ranks ─▶ a run
        ─▶ all tables, diagnose, check, exports, report, query

``attack.fuzz`` reads more inputs, and stops at the ledger. Here an input that a reader accepts goes
the whole way of a user, in this process. Three things make that fast:

- If an input's profile equals an earlier one, it goes no further: all commands after a reader
  depend on the profile alone.
- ``JOB`` profiles are the ranks of one run. If a command ends wrongly on it, each goes alone. One
  of ``JOB`` goes alone in any case, through ``ingest``. Run directories always go alone.
- The commands share one breakdown of a run, with all its tables.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

from attack.__main__ import _memory
from attack.damages import EVERYTHING, ended, problem_of
from attack.fuzz import HANG_S, hung
from attack.oracle import BusyError, Tally
from attack.run_mutations import write
from attack.targets import TARGETS, Target

from lstmprof import breakdown
from lstmprof.base.errors import LstmprofError
from lstmprof.base.names import TABLES
from lstmprof.breakdown import Breakdown, sql
from lstmprof.events import EventTable, Profile
from lstmprof.events.annotate import annotated
from lstmprof.formats import sources
from lstmprof.runs.ingest import INGESTED, described
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import Run, write_tables

#: These make a profile of a file, or a folder; foreign files are refused.
NAMES = [name for name in TARGETS if name != "foreign"]
_COUNTS = ", ".join(f"(SELECT count(*) FROM {name})" for name in TABLES)
COMMANDS = (
    ("breakdown", "{run}", "--format", "json"),
    ("diagnose", "{run}", "--evidence", "--waterfall", "--roofline"),
    ("check", "{run}"),
    ("export", "{run}", "--perfetto", "{out}/run.pftrace", "--speedscope", "{out}/s", "--force"),
    ("report", "{run}", "-o", "{out}/page.html", "--force"),
    ("query", f"SELECT {_COUNTS}, * FROM ({EVERYTHING})", "{run}", "--format", "csv"),
)


#: Ranks of a job.
JOB = 24
#: Inputs of each other kind for one run directory, which goes alone and so takes long.
_OTHERS = 4


@dataclass
class Way:
    """The way through all commands, in ``folder``; ``counts`` are of what went it.

    ``seen`` are digests of the profiles that went the whole way, ``waiting`` are inputs of each
    target that will go it as ranks of a job.
    """

    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    seen: set[bytes] = field(default_factory=set)
    waiting: defaultdict[str, list[tuple[bytes, Profile]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def problems(self, target: Target, content: bytes) -> Iterator[tuple[bytes, str]]:
        """Yield inputs with which a command ends wrongly, and how; also those of earlier calls."""
        self.counts["inputs"] += 1
        self._clear()
        if target.name == "run directory":
            write(content, self._run)
            yield from ((content, problem) for problem in self._ends(1))
            return
        tally = Tally()
        try:
            target.attack(content, tally, self.folder)
        except Exception:
            yield content, f"reading: {traceback.format_exc()[-900:]}"
        new = [profile for _, profile in tally.waiting if (_digest(profile)) not in self.seen]
        self.seen |= {_digest(profile) for profile in new}
        if not new:
            self.counts["equal profiles" if tally.waiting else "refused"] += 1
        elif self.counts["new"] % JOB == 0:
            yield from ((content, problem) for problem in self._alone(content))
        else:
            self.waiting[target.name].append((content, new[0]))
        self.counts["new"] += bool(new)
        if len(self.waiting[target.name]) == JOB:
            yield from self.job(self.waiting.pop(target.name))

    def job(self, inputs: Sequence[tuple[bytes, Profile]]) -> Iterator[tuple[bytes, str]]:
        """Give ``inputs`` to all commands as the ranks of one job; if one ends wrongly, alone."""
        self._clear()
        try:
            _write_job([profile for _, profile in inputs], self._run)
            problems = list(self._ends(len(inputs)))
        except Exception:
            problems = [f"joining: {traceback.format_exc()[-900:]}"]
        if problems:
            alone = [(content, told) for content, _ in inputs for told in self._alone(content)]
            yield from alone or [(inputs[0][0], f"in a job: {problem}") for problem in problems]

    @property
    def _run(self) -> Path:
        return self.folder / "run"

    def _clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()

    def _alone(self, content: bytes) -> Iterator[str]:
        """Yield what is wrong with the commands' ends on the runs that ``ingest`` makes."""
        self._clear()
        place = self.folder / "input"
        place.write_bytes(content)
        code, said, _ = ended(["ingest", str(place), "--out", str(self._run)])
        if problem := problem_of(code, said, said):
            yield f"ingest: {problem}"
        if self._run.exists():
            self.counts["alone"] += 1
            yield from self._ends(1)

    def _ends(self, inputs: int) -> Iterator[str]:
        """Yield what is wrong with the commands' ends on the run of so many ``inputs``."""
        with _sharing_breakdowns():
            for words in COMMANDS:
                if problem := self._problem(words):
                    yield f"{words[0]}: {problem}"
        self.counts["whole way"] += inputs

    def _problem(self, words: Sequence[str]) -> str:
        """Return what is wrong with the end of a command; empty if nothing is."""
        runs = [file.parent for file in self._run.glob("*/run.json")]
        run = runs[0] if runs and words[0] == "export" else self._run
        self.counts["commands"] += 1
        signal.alarm(HANG_S)
        try:
            code, said, answer = ended([word.format(run=run, out=self.folder) for word in words])
        except BusyError:
            code, said, answer = 70, "it hangs", ""
        finally:
            signal.alarm(0)
        code = 0 if words[0] == "check" and code == 3 else code
        return problem_of(code, said, answer or said)


def _write_job(profiles: Sequence[Profile], folder: Path) -> None:
    """Write a run whose ranks are ``profiles``; their epochs may be centuries apart: without."""
    job = sources.join_ranks(range(len(profiles)), [replace(p, base_ns=None) for p in profiles])
    job = replace(job, events=annotated(job.events, captured=False))
    info = run_info({**described("job", job, job.events), "source": INGESTED})
    folder.mkdir()
    write_tables(folder, info, job.events, counters=job.counters)


def _digest(profile: Profile) -> bytes:
    """Return a digest of all that ``profile`` says."""
    counters = [batch.to_pydict() for batch in profile.counters.batches()]
    rest = replace(profile, events=None, counters=None)
    said = repr((EventTable.of(profile.events).arrow.to_pydict(), counters, rest))
    return hashlib.sha256(said.encode(errors="surrogatepass")).digest()


@contextlib.contextmanager
def _sharing_breakdowns() -> Iterator[None]:
    """Make the breakdown of a run once, with all tables, for all commands."""
    make, shared = breakdown.break_down, {}

    def made(run: Run, step_range: str | None = None, tables: Sequence[str] = ()) -> Breakdown:
        if run.path not in shared:
            try:
                shared[run.path] = make(run, step_range, list(TABLES))
            except LstmprofError:  # tables that read less may be sound
                return make(run, step_range, tables)
        return shared[run.path]

    with (
        mock.patch.object(breakdown, "break_down", made),
        mock.patch.object(sql, "break_down", made),
    ):
        yield


def main() -> int:
    """Attack for some minutes; return 1 if a command ended wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--out", type=Path, default=Path("build/attack"), help="inputs that fail")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, hung)
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        tempfile.tempdir = folder
        os.environ["LSTMPROF_CACHE"] = f"{folder}/cache"
        way = Way(Path(folder) / "input")
        defects = sum(1 for found in _attack(way, options) if _keep(*found, options.out))
    return 1 if defects else 0


def _attack(way: Way, options: argparse.Namespace) -> Iterator[tuple[bytes, str]]:
    """Yield inputs with which a command ends wrongly, and how; print counts meanwhile."""
    until = time.monotonic() + 60 * options.minutes
    contents = {name: TARGETS[name].seeds() for name in NAMES}
    for number in itertools.count(options.first):
        for name in NAMES if number % _OTHERS == 0 else NAMES[:-1]:
            yield from way.problems(TARGETS[name], TARGETS[name].drawn(number, contents[name]))
        is_over = time.monotonic() > until
        if is_over:
            for inputs in filter(None, way.waiting.values()):
                yield from way.job(inputs)
        if is_over or number % 100 == 0:
            told = ", ".join(f"{count:,} {what}" for what, count in way.counts.items())
            print(f"number {number}: {told}; {time.process_time():.0f} s of CPU", flush=True)
        if is_over:
            return


def _keep(content: bytes, problem: str, folder: Path) -> Path:
    """Print ``problem``, and keep the input in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"whole-{hashlib.sha256(content).hexdigest()[:12]}"
    place.write_bytes(content)
    print(f"defect with {place}: {problem}", flush=True)
    return place


if __name__ == "__main__":
    raise SystemExit(main())
