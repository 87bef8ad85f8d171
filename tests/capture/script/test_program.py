"""A script under ``lstmprof run`` is what it is under ``python``: output, input, path, its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lstmprof.base.errors import CaptureError
from lstmprof.capture.interpreters.environments import python_of

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


#: PyTorch for as much as a script needs whose steps are found; lstmprof needs more of it.
FAKE_TORCH = {
    "__init__.py": "__version__ = '0.4'\nfrom . import optim\n",
    "optim/__init__.py": "from .optimizer import Optimizer\n",
    "optim/optimizer.py": "class Optimizer:\n    def step(self): return None\n",
}
TRAINS = (
    "import sys, torch\noptimizer = torch.optim.Optimizer()\n"
    "for _ in range(60): optimizer.step()\nprint('trained', sys.version_info[:2])\nsys.exit(6)\n"
)


def torch_stand_in(folder: Path) -> None:
    for name, text in FAKE_TORCH.items():
        path = folder / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "train.py").write_text(TRAINS, encoding="utf-8")


def test_a_fault_of_lstmprof_leaves_the_training_alone_and_is_reported(tmp_path: Path) -> None:
    torch_stand_in(tmp_path)
    broken = (
        "from lstmprof.capture.own import session\n"
        "session.staging = None  # what lstmprof is about to call\n"
    )
    (tmp_path / "train.py").write_text(broken + TRAINS, encoding="utf-8")
    watched = ran(tmp_path, "-m", "lstmprof", "run", "train.py")
    assert (watched.returncode, watched.stdout) == (6, f"trained {sys.version_info[:2]}\n")
    (line,) = watched.stderr.splitlines()
    assert line.startswith("lstmprof: did not write traces/train: lstmprof failed")
    assert "TypeError" in line
    assert "(capture/own/session.py:" in line


def test_a_script_under_python_3_7_ends_as_it_does_alone(tmp_path: Path) -> None:
    try:
        old = python_of(("3.7",), "the test").path
    except CaptureError as fault:
        pytest.skip(str(fault))
    torch_stand_in(tmp_path)
    watched = ran(tmp_path, "-m", "lstmprof", "run", "train.py", "--python", old)
    assert (watched.returncode, watched.stdout) == (6, "trained (3, 7)\n")
    (line,) = watched.stderr.splitlines()
    assert line.startswith("lstmprof: did not write traces/train: ")


def test_nothing_is_printed_while_the_script_runs(tmp_path: Path) -> None:
    torch_stand_in(tmp_path)
    bar = TRAINS.replace("print(", "sys.stderr.write('100%|###|'); print(file=sys.stderr); print(")
    (tmp_path / "train.py").write_text(bar, encoding="utf-8")
    watched = ran(tmp_path, "-m", "lstmprof", "run", "train.py")
    bar_line, line = watched.stderr.splitlines()
    assert bar_line == "100%|###|"
    assert line.startswith("lstmprof: did not write")
