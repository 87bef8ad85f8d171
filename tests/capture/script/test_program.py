"""A script under ``lstmprof run`` is what it is under ``python``: output, input, path, its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: name → what it does.
SCRIPTS = {
    "shows": "import sys\nprint(__name__, __file__, sys.argv, sys.path[0])\nprint(input())",
    "raises": "def inner():\n    raise ValueError('no')\n\ninner()",
    "exits": "import sys\nprint('out')\nsys.exit(3)",
    "exits with words": "import sys\nsys.exit('gone')",
    "interrupted": "raise KeyboardInterrupt",
    "no syntax": "def\n",
    "ends at once": "import os\nos._exit(4)",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "forks": "import os, sys\nif os.fork():\n    os.wait()\nelse:\n    sys.exit(0)\nsys.exit(5)",
    "hooks": "import sys\nsys.excepthook = lambda *e: print('mine', e[0].__name__)\n1 / 0",
    "pickles": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
}


def ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=folder, input="typed\n", capture_output=True, text=True
    )


def own(stderr: str) -> list[str]:
    """The lines that are lstmprof's own."""
    return [line for line in stderr.splitlines() if line.startswith("lstmprof: ")]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_ends_as_it_does_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPTS[name], encoding="utf-8")
    alone = ran(tmp_path, "train.py", "--size", "3")
    watched = ran(tmp_path, "-m", "lstmprof", "run", "train.py", "--", "--size", "3")
    assert watched.returncode == alone.returncode
    assert watched.stdout == alone.stdout
    others = [line for line in watched.stderr.splitlines() if line not in own(watched.stderr)]
    assert others == alone.stderr.splitlines()
    lines = [line for line in own(watched.stderr) if "did not write traces/train: " in line]
    assert len(lines) == (0 if name in ("killed", "ends at once") else 1)
    assert lines == own(watched.stderr)
    assert not list(tmp_path.glob("traces/*"))


def test_a_script_that_fails_before_a_step_is_not_told_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPTS["raises"], encoding="utf-8")
    assert own(ran(tmp_path, "-m", "lstmprof", "run", "train.py").stderr) == [
        "lstmprof: did not write traces/train: ValueError ended the script before a step was seen"
    ]


def test_a_script_that_exits_before_a_step_is_not_told_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('which data?')", encoding="utf-8")
    assert own(ran(tmp_path, "-m", "lstmprof", "run", "train.py").stderr) == [
        "lstmprof: did not write traces/train: the script ended with exit status 1 before a step "
        "was seen"
    ]


def test_a_folder_that_cannot_be_written_is_told_before_the_script_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')", encoding="utf-8")
    (tmp_path / "full").write_text("", encoding="utf-8")
    done = ran(tmp_path, "-m", "lstmprof", "run", "train.py", "--out", "full/traces")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("lstmprof: error: full/traces: cannot be written (")


def test_a_module_runs_as_python_m_runs_it(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "mine" / "__main__.py").write_text(
        "import sys\nfrom . import other\nprint(__package__, __spec__.name, sys.argv, sys.path[0])",
        encoding="utf-8",
    )
    (tmp_path / "mine" / "other.py").write_text("", encoding="utf-8")
    alone = ran(tmp_path, "-m", "mine", "a", "-b")
    watched = ran(tmp_path, "-m", "lstmprof", "run", "-m", "mine", "--", "a", "-b")
    assert (watched.returncode, watched.stdout) == (0, alone.stdout)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["none.py"], "none.py: no such file; give a script, or -m MODULE"),
        ([], "no script is given; give a file, or -m MODULE"),
        (
            ["train.py", "--python", "none"],
            "none: No such file or directory; give an executable Python",
        ),
        (["train.py", "--name", "a/b"], "a/b"),
        (["train.py", "--epochs", "4"], "put the script's options after --"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    arguments: list[str], line: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('ran')", encoding="utf-8")
    refused = ran(tmp_path, "-m", "lstmprof", "run", *arguments)
    assert refused.returncode in (1, 2)
    assert refused.stdout == ""
    assert line in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("function", "line"),
    [("step", "the script never called 'step'"), ("other", "has no function 'other'")],
)
def test_a_named_function_that_never_runs_is_told(function: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def step(): pass", encoding="utf-8")
    told = ran(tmp_path, "-m", "lstmprof", "run", "train.py", "--step-function", function)
    assert told.returncode == 0
    assert line in told.stderr
