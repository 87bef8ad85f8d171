"""Several processes of one job: which rank each is, and one run of their parts."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from capture.trainers import python_of_trainers

import lstmprof as lp
from lstmprof.capture.request import ScriptRequest
from lstmprof.capture.script import ranks

PROGRAM = str(Path(__file__).parent / "ddp.py")
TORCHRUN = ("torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"}, (1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8"}, (1, 8)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),  # the batch script
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "first", "WORLD_SIZE": "2"}, None),
        ({}, None),
    ],
)
def test_the_rank_is_what_the_launcher_says(
    variables: dict[str, str], rank: tuple[int, int] | None
) -> None:
    assert ranks.rank_of(variables) == rank


@pytest.mark.parametrize(
    ("command", "env", "watched"),
    [
        (["python3", "-u", "train.py", "-m", "1"], {"RANK": "0"}, ("train.py", False, ["-m", "1"])),
        (["python", "-W", "error", "-m", "a.b", "c"], {"LOCAL_RANK": "0"}, ("a.b", True, ["c"])),
        (["python", "-c", "print()"], {"RANK": "0"}, None),
        (["python", "tool.py"], {}, None),
        (["nvidia-smi"], {"RANK": "0"}, None),
    ],
)
def test_only_python_programs_that_a_launcher_starts_as_ranks_are_watched(
    command: list[str], env: dict[str, str], watched: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    changed = ranks.Job(ScriptRequest("launcher", "traces/a"))._watched(command, env)
    if watched is None:
        assert changed is None
        return
    assert changed is not None
    request = ScriptRequest.from_json(Path(changed[-1]).read_text(encoding="utf-8"))
    assert (request.target, request.module, request.arguments) == watched
    assert request.parts
    assert changed[:2] == command[:2]


def ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [port if word == "PORT" else word for word in command]
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    "command",
    [
        ("lstmprof", "run", "--quiet", "-m", *TORCHRUN, "--master-port", "PORT", PROGRAM, "a"),
        ("lstmprof", "run", "--quiet", PROGRAM, "--", "spawn", "PORT"),
        ("lstmprof", "run", "--quiet", PROGRAM, "--", "fork", "PORT"),
        (*TORCHRUN, "--master-port", "PORT", "-m", "lstmprof", "run", "--quiet", PROGRAM, "a"),
    ],
    ids=["torchrun", "spawn", "fork", "lstmprof by torchrun"],
)
def test_two_processes_become_one_run_of_two_ranks(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("torch.distributed")
    done = ran(tmp_path, *command)
    trained = sorted(done.stdout.splitlines())
    assert [line.split()[:2] for line in trained] == [["trained", "0"], ["trained", "1"]]
    lines = [line for line in done.stderr.splitlines() if line.startswith("lstmprof: ")]
    assert lines[-1] == (
        "lstmprof: wrote traces/ddp of 2 ranks; next: lstmprof diagnose traces/ddp"
    )
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["ddp"]
    check_ranks(tmp_path / "traces" / "ddp", (0, 1), (5, 2, 8, 4))


@pytest.mark.parametrize(
    ("options", "ranks"),
    [(("--multi_gpu", "--main_process_port", "PORT"), (0, 1)), (("--cpu",), (None,))],
    ids=["two processes", "one process"],
)
def test_the_processes_of_accelerate_become_one_run(
    options: tuple[str, ...], ranks: tuple[int | None, ...], tmp_path: Path
) -> None:
    script = Path(__file__).parents[2] / "own_code" / "accelerate_records.py"
    done = ran(
        *(tmp_path, "lstmprof", "run", "--quiet", "--python", python_of_trainers()),
        *("accelerate", "launch", "--num_processes", "2", *options, str(script), "120"),
    )
    assert len(re.findall(r"^loss ", done.stdout, re.M)) == 1  # rank 0 prints
    count = " of 2 ranks" if len(ranks) == 2 else ""
    assert (
        f"lstmprof: wrote traces/accelerate_records{count}; "
        "next: lstmprof diagnose traces/accelerate_records\n"
    ) in done.stderr
    check_ranks(tmp_path / "traces" / "accelerate_records", ranks, (10, 8, 8, 24))


def check_ranks(place: Path, ranks: tuple[int | None, ...], sizes: tuple[int, ...]) -> None:
    """Check that the ranks have the same steps, layers of these sizes, and a verdict.

    ``sizes`` are the time steps, batch, inputs and hidden units.
    """
    run = lp.read(place)
    count = len(run.info.profiled_wall_ns or ())
    assert [(row["rank"], row["step"]) for row in run.table("steps").rows()] == [
        (rank, step) for rank in ranks for step in range(count)
    ]
    layers = run.table("layers").rows()
    assert sorted(row["rank"] or 0 for row in layers) == [rank or 0 for rank in ranks]
    names = ("time_steps", "batch", "inputs", "hidden")
    assert {tuple(row[name] for name in names) for row in layers} == {sizes}
    assert json.loads((place / "run.json").read_text())["source"] == "own code"
    assert lp.diagnose(run).sentence
