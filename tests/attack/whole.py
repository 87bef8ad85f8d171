"""Give damaged inputs to every command: ``python -m attack.whole --minutes 10``.

::

    an input of a target ─ ingest ─▶ a run ─▶ all tables, diagnose, check, exports, report, query

``attack.fuzz`` reads more inputs, and stops at the ledger. Here an input that a reader accepts goes
the whole way of a user, in this process.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from attack.damages import EVERYTHING, ended, problem_of
from attack.fuzz import HANG_S, hung
from attack.oracle import BusyError
from attack.run_mutations import write
from attack.targets import TARGETS, Target

from lstmprof.names import TABLES

#: These make a profile of a file, or a folder; foreign files are refused.
_NAMES = [name for name in TARGETS if name != "foreign"]
_COUNTS = ", ".join(f"(SELECT count(*) FROM {name})" for name in TABLES)
COMMANDS = (
    ("breakdown", "{run}", "--format", "json"),
    ("diagnose", "{run}", "--evidence", "--waterfall", "--roofline"),
    ("check", "{run}"),
    ("export", "{run}", "--perfetto", "{out}/run.pftrace", "--force"),
    ("export", "{run}", "--speedscope", "{out}/run.json", "--force"),
    ("report", "{run}", "-o", "{out}/page.html", "--force"),
    ("query", f"SELECT {_COUNTS}", "{run}"),
    ("query", EVERYTHING, "{run}", "--format", "csv"),
)


def problems(target: Target, number: int, content: bytes, folder: Path) -> Iterator[str]:
    """Yield what is wrong with the end of a command; an empty text for each that ends well."""
    place = folder / "input"
    if target.name == "run directory":
        write(content, place)
        run = place
    else:
        place.write_bytes(content)
        run = folder / "runs"
        code, said, _ = ended(["ingest", str(place), "--out", str(run)])
        if code:
            yield problem_of(code, said, said)
            return
    for words in COMMANDS:
        command = [word.format(run=run, out=folder) for word in words]
        signal.alarm(HANG_S)
        try:
            code, said, answer = ended(command)
        except BusyError:
            code, said, answer = 70, "it hangs", ""
        finally:
            signal.alarm(0)
        code = 0 if command[0] == "check" and code == 3 else code
        problem = problem_of(code, said, answer or said)
        yield f"{target.name} {number}, {words[0]}: {problem}" if problem else ""


def main() -> int:
    """Attack for some minutes; return 1 if a command ended wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, hung)
    until, inputs, commands, faults = time.monotonic() + 60 * options.minutes, Counter(), 0, []
    contents = {name: TARGETS[name].seeds() for name in _NAMES}
    for number in itertools.count(options.first):
        for name in _NAMES:
            if time.monotonic() > until:
                print(f"{inputs.total()} inputs, {commands} commands, {len(faults)} defects")
                return 1 if faults else 0
            with tempfile.TemporaryDirectory() as folder:
                drawn = TARGETS[name].drawn(number, contents[name])
                for problem in problems(TARGETS[name], number, drawn, Path(folder)):
                    commands += 1
                    if problem:
                        faults.append(problem)
                        print(problem, flush=True)
            inputs[name] += 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
