"""What the commands print of the committed samples, word for word: tests/golden/*.txt.

The only tests that hold whole sentences. ``make golden`` writes the files anew; a person reads the
difference. Each begins with the command that it is of, and ends with what went to stderr and with
the exit status if there is any.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import pytest
from in_process import lstmprof

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).resolve().parent / "golden"
DEMO = "traces/torch-nn-lstm traces/torch-lstmcell-basic traces/tf-lstmcell"

#: Name of the file → the arguments.
CASES = {
    "diagnose": f"diagnose {DEMO}",
    "diagnose_evidence": f"diagnose {DEMO} --evidence",
    "diagnose_waterfall": f"diagnose {DEMO} --waterfall",
    "diagnose_roofline": f"diagnose {DEMO} --roofline",
    "diagnose_warnings": f"diagnose {DEMO} --warnings",
    "diagnose_markdown": f"diagnose {DEMO} --format markdown",
    "diagnose_folder": "diagnose traces/",
    "diagnose_alone": "diagnose traces/torch-lstmcell-basic",
    "diagnose_missing": "diagnose traces/torch-nn-lstm traces/no-such-run",
    "breakdown": "breakdown traces/torch-nn-lstm",
    "breakdown_three": f"breakdown {DEMO}",
    "breakdown_kernels": "breakdown traces/torch-lstmcell-basic --table kernels --top 10",
    "breakdown_timings": f"breakdown {DEMO} --table timings",
    "compare_pass": "compare traces/torch-nn-lstm traces/jax-scan --fail-if slower>10%",
    "compare_fail": "compare traces/torch-nn-lstm traces/tf-lstmblockfusedcell",
    "compare_inconclusive": "compare traces/torch-nn-lstm traces/torch-lstmcell-basic",
    "history": "history traces/torch-nn-lstm traces/torch-nn-lstm-torch-1.8.1 --by label",
    "check": "check traces/torch-nn-lstm",
    "list": "list",
    "list_torch": "list torch",
    "table": "table traces/",
}


def printed(case: str) -> str:
    """Return what the command of ``case`` prints, with its exit status."""
    # what is installed, and which GPU there is, is no part of what a list looks like
    with (
        mock.patch("lstmprof.commands.recording.list.here", return_value="yes"),
        mock.patch("lstmprof.commands.recording.list.in_era", return_value="yes"),
    ):
        done = lstmprof(*CASES[case].split(), cwd=ROOT)
    lines = [f"$ lstmprof {CASES[case]}", *done.stdout.splitlines()]
    lines += [f"stderr: {line}" for line in done.stderr.splitlines()]
    lines += [f"exit status: {done.returncode}"] if done.returncode else []
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.parametrize("case", CASES)
def test_a_command_prints_what_its_golden_file_holds(case: str) -> None:
    golden = (FOLDER / f"{case}.txt").read_text(encoding="utf-8")
    assert printed(case) == golden, "read the difference, then: make golden"


def test_every_golden_file_is_of_a_case() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)


@pytest.mark.parametrize(("case", "most"), [("diagnose", 25), ("breakdown", 25)])
def test_what_a_user_sees_first_fits_a_small_terminal(case: str, most: int) -> None:
    lines = printed(case).splitlines()[1:]
    assert len(lines) <= most
    assert max(map(len, lines)) <= 100


def rewrite() -> None:
    """Write every golden file anew, and remove those of no case."""
    for path in FOLDER.glob("*.txt"):
        if path.stem not in CASES:
            path.unlink()
    for case in CASES:
        (FOLDER / f"{case}.txt").write_text(printed(case), encoding="utf-8")
        sys.stderr.write(f"{case}\n")


if __name__ == "__main__":
    rewrite()
