"""Attack the readers for some minutes: ``make fuzz MINUTES=10``; ``python -m attack`` in ``tests``.

Workers draw inputs from numbers, the same processor time for each target; one more process is
guided by coverage, one target after the other (``attack.guided``), where atheris is installed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.process
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attack.fuzz import draw, hung
from attack.oracle import Tally
from attack.targets import TARGETS

#: How much longer than it was given the guided process may take: it starts once a target.
_GRACE_S = 60
_COUNTS = ("inputs", "accepted", "ledgers", "refused")


def main() -> int:
    """Attack as the command line says; 1 where a promise was broken."""
    options = _options().parse_args()
    signal.signal(signal.SIGALRM, hung)
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        tempfile.tempdir = scratch
        if options.again:
            _again(options.again[0], Path(options.again[1]), Path(scratch))
            return 0
        told = _attacked(options, Path(scratch))
    (options.out / "counts.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    print(table(told))
    print(f"wrote {options.out / 'counts.json'}")
    broken = {place for part in told["parts"] for place in part["broken promises"]}
    broken |= {*told["died"]}
    for place in sorted(broken):
        print(f"broken: {place}")
    return 1 if broken else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--inputs", type=int, help="so many of each target and worker at most")
    parser.add_argument("--workers", type=int, default=1, help="processes that draw inputs")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    parser.add_argument("--target", action="append", choices=[*TARGETS])
    parser.add_argument("--out", type=Path, default=Path("build/attack"), help="failures, counts")
    parser.add_argument("--atheris", type=Path, help="the folder that it is installed in")
    parser.add_argument("--again", nargs=2, metavar=("TARGET", "FILE"))
    return parser


def _memory() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _attacked(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """What all processes did."""
    names = options.target or [*TARGETS]
    options.out.mkdir(parents=True, exist_ok=True)
    guided = _guided(options, names, scratch)
    print(f"seed {options.seed}, {'' if guided else 'not '}guided by coverage too", flush=True)
    workers = [_worker(options, names, scratch, number) for number in range(options.workers)]
    for worker in workers:
        worker.join()
    counts = [*scratch.glob("drawn-*.json")]
    if guided:
        _ended(guided)
        counts += scratch.glob("guided-*.json")
    parts = [{"process": f.stem, **json.loads(f.read_text())} for f in sorted(counts)]
    died = [f"worker {n} ended with {w.exitcode}" for n, w in enumerate(workers) if w.exitcode]
    return {"seed": options.seed, "minutes": options.minutes, "died": died, "parts": parts}


def _worker(
    options: argparse.Namespace, names: list[str], scratch: Path, number: int
) -> multiprocessing.process.BaseProcess:
    """A process that draws inputs; its counts go to a file of ``scratch``."""
    span = (options.minutes, options.inputs)
    counts = scratch / f"drawn-{number}.json"
    worker = multiprocessing.get_context("spawn").Process(
        target=draw, args=(names, options.seed, options.out, counts, number, *span)
    )
    worker.start()
    return worker


def _guided(
    options: argparse.Namespace, names: list[str], scratch: Path
) -> subprocess.Popen[bytes] | None:
    """A process that attacks one target after the other by coverage; None without atheris."""
    if options.atheris is None or not (options.atheris / "atheris").is_dir():
        return None
    seconds = max(1, int(60 * options.minutes / len(names)))
    command = [sys.executable, "-m", "attack.guided", f"--seconds={seconds}"]
    command += [f"--seed={options.seed}", f"--out={options.out}"]
    lines = [
        shlex.join([*command, f"--target={name}", f"--counts={scratch / f'guided-{number}.json'}"])
        for number, name in enumerate(names)
    ]
    log = shlex.quote(os.fspath(options.out / "guided.log"))
    path = os.pathsep.join([*sys.path, os.fspath(options.atheris.absolute())])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": os.fspath(scratch)}
    script = f"({'; '.join(lines)}) > {log} 2>&1"
    return subprocess.Popen(["sh", "-c", script], env=environment, start_new_session=True)


def _ended(guided: subprocess.Popen[bytes]) -> None:
    """Wait for the guided process, which takes somewhat longer than it was given; then end it."""
    try:
        guided.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(guided.pid, signal.SIGTERM)
        guided.wait()


def table(told: Mapping[str, Any]) -> str:
    """The counts by target, as a table of Markdown."""
    sums = {name: dict.fromkeys((*_COUNTS, "guided"), 0) for name in TARGETS}
    for part in told["parts"]:
        for name, counts in part["targets"].items():
            for count in _COUNTS:
                sums[name][count] += counts[count]
            sums[name]["guided"] += counts["inputs"] * part["process"].startswith("guided")
    heads = ("what is read", "inputs", "accepted", "ledgers held exact", "refusals", "guided")
    attacked = {name: counts for name, counts in sums.items() if counts["inputs"]}
    rows = [(name, *map("{:,}".format, counts.values())) for name, counts in attacked.items()]
    total = [sum(counts[key] for counts in sums.values()) for key in (*_COUNTS, "guided")]
    rows.append(("**all**", *map("{:,}".format, total)))
    lines = [heads, ("---", *["---:"] * (len(heads) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _again(name: str, file: Path, scratch: Path) -> None:
    tally = Tally()
    TARGETS[name].attack(file.read_bytes(), tally, scratch)
    for _, error in tally.account(least=1):
        raise error
    print(f"{tally.accepted} accepted, {tally.refused} refused: {[*tally.faults]}")


if __name__ == "__main__":
    sys.exit(main())
