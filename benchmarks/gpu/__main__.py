"""``python -m benchmarks.gpu``: run the tests that need a GPU, then captures; print a summary."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from benchmarks.gpu import packing, processes, raw_captures, session, summary, wheels, wishes
from benchmarks.gpu.estimates import Estimates
from lstmprof.base.errors import UsageError
from lstmprof.capture import system
from lstmprof.capture.worker.machine.host import cuda_devices

#: Shares of the time budget: the most that tests may take; what is reserved for reading profiles;
#: what is reserved for archives and the summary.
TESTS_SHARE, READING_SHARE, CLOSING_SHARE = 0.45, 0.08, 0.05  # the tests take about 200 s
#: The most important test file, which runs first, in case that time is short.
FIRST_TESTS = "test_on_a_gpu"
#: At most this many captures that were not begun are listed; further ones are only counted.
MOST_NOT_BEGUN = 5
#: Exit codes: everything was captured; something failed; the time was up before the plan was done.
WELL, FAILED, TIME_UP = 0, 1, 3
_UNITS = {"s": 1, "m": 60, "h": 3600}
DESCRIPTION = """Test and capture on a GPU, the most important first, for as long as --budget says.

Each capture is a process of its own with a time limit; one that hangs or dies costs only its
time. Started again, the command continues where it stopped.

Exit code: 0 everything was captured, 1 something failed, 3 the time was up before, 2 usage.

Example:
  python -m benchmarks.gpu --dry-run
  python -m benchmarks.gpu --budget 480s --wheels build/wheels --pack back"""


class _Parser(argparse.ArgumentParser):
    """An argument parser that prints a usage error as one line."""

    def error(self, message: str) -> NoReturn:
        """Print ``message`` and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def seconds(text: str) -> float:
    """Convert a length of time such as ``480s``, ``8m`` or ``480`` to seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"'{text}' is no length of time: give 480s, 8m or 1h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number from {least} up")
        return int(text)

    return number


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' is no folder")
    return Path(text)


@dataclasses.dataclass(frozen=True)
class Asked:
    """The options of the command; ``budget`` and ``limit`` are in seconds."""

    budget: float
    out: Path
    device: str
    tiny: bool
    limit: float
    most: int | None
    only: str | None
    tests: bool
    carried: Path | None
    pack: Path | None
    pack_mb: float
    pack_most: int | None
    dry_run: bool


def _say(line: str = "") -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="benchmarks.gpu",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=DESCRIPTION,
    )
    add = parser.add_argument
    add("--budget", type=seconds, default=480.0, help="Time for everything (default: 480s).")
    add(
        "--out",
        type=Path,
        default=Path("traces/gpu"),
        help="Folder of runs; captures that are there are not repeated (default: traces/gpu).",
    )
    add("--device", default="cuda:0", help="cuda:N, or cpu with --tiny (default: cuda:0).")
    add("--tiny", action="store_true", help="Networks of 8 units: tries the script on a CPU.")
    add("--limit", type=seconds, default=180.0, help="Time for one capture (default: 180s).")
    add("--most", type=_at_least(0), help="Only the first so many captures; 0: tests alone.")
    add("--only", metavar="TEXT", help="Only captures with TEXT in their name.")
    add(
        "--tests",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Run the tests marked gpu first.",
    )
    add(
        "--wheels",
        dest="carried",
        type=_folder,
        metavar="FOLDER",
        help="Wheels of `make gpu-wheels`; packages that are missing here come from it.",
    )
    add("--pack", type=Path, metavar="FOLDER", help="Folder to write archives to.")
    add("--pack-mb", type=float, default=15.0, help="Size of one archive, MB (default: 15).")
    add("--pack-most", type=_at_least(1), help="Number of archives (default: no limit).")
    add("--dry-run", action="store_true", help="Print the plan and do nothing.")
    return parser


def _session(asked: Asked) -> int:
    until_s = time.monotonic() + asked.budget
    planned = session.plan(wishes.requests(asked.device, tiny=asked.tiny), asked.out)
    chosen = [p for p in planned if asked.only is None or asked.only in p.name][: asked.most]
    _show_plan(chosen, asked.budget, whole=asked.dry_run)
    if asked.dry_run:
        return WELL
    if asked.device != "cpu" and not cuda_devices():
        raise UsageError("the driver shows no CUDA device; --device cpu --tiny needs none")
    place = processes.Place(asked.out.resolve(), (asked.out / ".site").resolve())
    place.out.mkdir(parents=True, exist_ok=True)
    raw_captures.sweep(place.out)
    if asked.device != "cpu":
        _show_machine(place.out / "system.txt")
    place = dataclasses.replace(place, readable=_prepared(place, asked.carried))
    tests_s = asked.budget * (TESTS_SHARE if chosen else 1.0)
    tested = _tested(place, tests_s) if asked.tests else True
    reading_until_s = until_s - CLOSING_SHARE * asked.budget
    captures = _Captures(place, reading_until_s - READING_SHARE * asked.budget, asked.limit)
    captures.run(chosen)
    _read_the_rest(place, reading_until_s)
    _close(place, chosen, asked)
    if captures.failed or not tested:
        return FAILED
    return TIME_UP if captures.not_begun else WELL


def _show_machine(file: Path) -> None:
    """Print the output of ``lstmprof check --system`` and store it in ``file``.

    Do nothing if ``file`` exists, because the check is slow: it imports each framework.
    """
    if not file.is_file():
        lines = [f"{line.name}: {line.sentence}; {line.next_step}" for line in system.lines()]
        file.write_text("\n".join(line.rstrip("; ") for line in lines) + "\n", encoding="utf-8")
        _say(file.read_text(encoding="utf-8").rstrip())


def _show_plan(planned: Sequence[session.Planned], budget: float, *, whole: bool) -> None:
    """Print the plan with time estimates.

    List all captures if ``whole``, else only the captures likely to fit into ``budget`` seconds.
    """
    estimates = Estimates()
    todo = [one for one in planned if one.skip is None]
    ends_s = list(itertools.accumulate(estimates.seconds(one.request) for one in todo))
    _say(
        f"plan: {len(todo)} captures of about {ends_s[-1] if ends_s else 0:.0f} s in all,"
        f" {budget:.0f} s to spend; {len(planned) - len(todo)} left out"
    )
    for number, (one, end_s) in enumerate(zip(todo, ends_s, strict=True), 1):
        if whole or end_s < budget:
            _say(f"{number:4}  ~{estimates.seconds(one.request):4.0f} s  {one.name}")
    reasons = Counter(one.skip.partition(": ")[2] or one.skip for one in planned if one.skip)
    for reason, count in reasons.items():
        _say(f"left out, {count}: {reason}")


def _prepared(place: processes.Place, carried: Path | None) -> bool:
    """Unpack the wheels in ``carried`` and add them to sys.path.

    Return whether all packages that read profiles are available.
    """
    if carried is not None:
        names = wheels.unpacked(carried, place.site)
        _say(f"from {carried}: {', '.join(names) or 'nothing, all of it is installed'}")
    sys.path.insert(0, str(place.site))
    importlib.invalidate_caches()
    absent = [name for name in (*raw_captures.READERS, "pytest", "flax") if not _is_there(name)]
    if absent:
        _say(
            f"done without: {', '.join(absent)} (profiles are read only with"
            f" {', '.join(raw_captures.READERS)}; make gpu-wheels carries them)"
        )
    return not set(absent) & set(raw_captures.READERS)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _tested(place: processes.Place, limit_s: float) -> bool:
    """Run the tests marked ``gpu`` for at most ``limit_s`` seconds; return whether they passed.

    Return True, too, if the packages that tests need are missing.
    """
    if not place.readable or not _is_there("pytest"):
        _say("tests: done without, what they need is not installed")
        return True
    files = gpu_tests()
    log = place.out / "tests.log"
    ended = processes.tested(place, files, limit_s, log)
    told = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in told:
        if re.match(r"(FAILED|ERROR) |tests/\S+ (FAILED|ERROR) ", line):
            _say(f"tests: {line}")
    last = next((line for line in reversed(told) if line.strip()), "")
    _say(f"tests: {ended.fault if ended.hung else last} ({ended.took_s:.0f} s; all of it: {log})")
    return ended.fault is None


def gpu_tests() -> list[str]:
    """Return the test files with a test marked ``gpu``, relative to the checkout's root.

    The most important file is the first.
    """
    tests = sorted((processes.ROOT / "tests").rglob("test_*.py"))
    tests.sort(key=lambda path: path.stem != FIRST_TESTS)
    marked = [path for path in tests if "mark.gpu" in path.read_text(encoding="utf-8")]
    return [str(path.relative_to(processes.ROOT)) for path in marked]


class _Captures:
    """Runs the captures of a plan, prints a line for each, and counts failures."""

    def __init__(self, place: processes.Place, until_s: float, limit_s: float) -> None:
        self.place = place
        self.session = session.Session(
            lambda request, most_s: processes.captured(place, request, most_s), until_s, limit_s
        )
        self.failed = self.not_begun = 0

    def run(self, planned: Sequence[session.Planned]) -> None:
        """Run the captures that are not skipped."""
        for outcome in self.session.outcomes(planned):
            self._tell(outcome)
        if self.not_begun:
            _say(f"not begun: {self.not_begun}, for want of time or after failures")

    def _tell(self, outcome: session.Outcome) -> None:
        name, ended = outcome.planned.name, outcome.ended
        left = f"{max(self.session.left_s(), 0):5.0f} s left"
        if ended is None:
            self.not_begun += 1
            if self.not_begun <= MOST_NOT_BEGUN:
                _say(f"{left}  not begun: {name}: {outcome.why}")
        elif ended.fault:
            self.failed += 1
            _say(f"{left}  failed: {name} after {ended.took_s:.1f} s: {ended.fault}")
        else:
            unread = name in raw_captures.waiting(self.place.out)
            later = ", its profile not read yet" if unread else ""
            _say(f"{left}  {name}: {ended.took_s:.1f} s{later}")


def _read_the_rest(place: processes.Place, until_s: float) -> None:
    """Convert the remaining raw captures, whose profiles are large, to runs until ``until_s``."""
    for name in raw_captures.waiting(place.out) if place.readable else []:
        left_s = until_s - time.monotonic()
        if left_s < 1:
            break
        ended = processes.made_run(place, name, left_s)
        _say(f"{left_s:5.0f} s left  read {name}: {ended.fault or f'{ended.took_s:.1f} s'}")


def _close(place: processes.Place, planned: Sequence[session.Planned], asked: Asked) -> None:
    """Write archives of the captures if requested, print the summary, and how to go on."""
    names = [one.name for one in planned]
    archives = _packed(place.out, names, asked)
    _say()
    _say(summary.hardware(place.out, names))
    for line in summary.text(summary.lines(place.out, names)):
        _say(line)
    _say("* below 2 MB: small enough to be committed as a sample")
    unread = len(raw_captures.waiting(place.out))
    if unread:
        _say(
            f"{unread} captures are no runs yet; where profiles can be read:"
            f" python -m benchmarks.gpu.capture_one --read {place.out}"
        )
    for archive in archives:
        size = archive.path.stat().st_size / 1e6
        _say(f"{archive.path}: {size:.1f} MB, {len(archive.names)} of them")
    held = {name for archive in archives for name in archive.names}
    for name in names if asked.pack else []:
        if name not in held and packing.folder_of(place.out, name):
            _say(f"in no archive, for want of room: {name}")
    _say(
        "next, at home: tar xzf each archive in traces/gpu, then lstmprof breakdown traces/gpu"
        if archives
        else f"the runs are in {place.out}; --pack FOLDER writes archives to bring back"
    )


def _packed(out: Path, names: Sequence[str], asked: Asked) -> list[packing.Archive]:
    if asked.pack is None:
        return []
    return packing.packed(out, names, asked.pack, round(asked.pack_mb * 1e6), asked.pack_most)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    asked = Asked(**vars(_parser().parse_args(arguments)))
    try:
        return _session(asked)
    except UsageError as error:
        print(f"benchmarks.gpu: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
