"""Capture the sample runs of traces/ again: ``make samples``, some minutes on an idle machine.

The samples are one network in ten implementations, also with mixed precision, an older version and
fewer time steps; traces/studies has the other runs that analyses/ needs. The names of samples
(``torch-nn-lstm``, ``torch-nn-lstm-t5``) differ from those of captures, so that they do not collide
with a user's captures. What identifies the machine or its user is removed: the interpreter's path,
the kernel's version, the raw profiles, and metadata of the profiles.

``python -m benchmarks.samples [GROUP…]`` captures some groups; ``--list`` shows all groups.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lstmprof.runs.run import Run, is_run, open_run, run_folders_in, runs_in, write_info

#: Folder in traces/ with the networks of published studies.
STUDIES = "studies"
TRACES = Path(__file__).resolve().parents[1] / "traces"
#: A sample may have this size, and this size again for each 100 time steps after the first 100.
MOST_BYTES = 500_000
#: Metadata of a profile that contains the machine's name or the profile's path; samples lack it.
OF_THE_MACHINE = ("host_name", "hostnames", "traceName", "trace_id")
ASR = ("--workload", "1x320-ce-short", "--time-steps", "20")
SHALLOW = (
    *("torch-nn-lstm", "tf-lstmblockfusedcell", "torch-lstmcell-fused", "torch-lstmcell-basic"),
    *("tf-lstmblockcell", "tf-lstmcell", "keras-lstm", "lasagne-lstm", "keras-theano-lstm"),
)
#: Implementations that run on a CPU, of those that the ASR study timed with four layers.
DEEP = ("torch-nn-lstm", "tf-lstmblockcell", "tf-lstmcell", "lasagne-lstm")

GLAMPLE = ("torch-nn-lstm", "tf-lstmcell", "pytensor-scan")


def _deepbench(*sizes: str) -> tuple[str, ...]:
    return tuple(word for size in sizes for word in ("--workload", f"deepbench-lstm-{size}"))


@dataclass(frozen=True)
class Group:
    """Sample runs that one capture command makes.

    ``dropped`` are parts of the runs' names that the samples' names do not have.
    """

    implementations: tuple[str, ...]
    options: tuple[str, ...]
    dropped: tuple[str, ...] = ("1x320-ce-short-t20", "fp32")
    folder: str = STUDIES

    def command(self, out: str) -> list[str]:
        """Return the arguments of lstmprof that capture this group into the folder ``out``."""
        chosen = [word for name in self.implementations for word in ("--impl", name)]
        return ["capture", *chosen, *self.options, "--out", out]


GROUPS = {
    "network": Group(
        (
            *("torch-nn-lstm", "torch-lstmcell-fused", "torch-lstmcell-basic"),
            *("tf-lstmblockfusedcell", "tf-lstmblockcell", "tf-lstmcell", "keras-lstm"),
            *("lasagne-lstm", "keras-theano-lstm", "jax-scan"),
        ),
        (*ASR, "--rounds", "6"),
        folder="",
    ),
    "long": Group(
        (
            *("torch-nn-lstm", "torch-lstmcell-fused", "torch-lstmcell-basic"),
            *("tf-lstmblockfusedcell", "tf-lstmblockcell", "tf-lstmcell", "keras-lstm"),
            *("lasagne-lstm", "keras-theano-lstm"),
        ),
        ("--workload", "1x320-ce-long", "--time-steps", "20"),
    ),
    # The ASR study's networks with one layer, at the study's own lengths.
    "own-length": Group(
        SHALLOW, ("--workload", "1x320-ce-short", "--iterations", "10", "--profile-steps", "1")
    ),
    "own-length-long": Group(
        SHALLOW,
        (
            *("--workload", "1x320-ce-long", "--iterations", "5", "--warmup", "1"),
            *("--profile-steps", "1"),
        ),
    ),
    "deep": Group(
        DEEP, ("--workload", "4x320-ce-long", "--time-steps", "10", "--profile-steps", "2")
    ),
    "ctc": Group(
        DEEP,
        (
            *("--workload", "4x320-ctc-long", "--time-steps", "10"),
            *("--labels", "2", "--profile-steps", "2"),
        ),
    ),
    "amp": Group(("torch-lstmcell-basic",), (*ASR, "--precision", "amp-bf16"), folder=""),
    "versions": Group(("torch-nn-lstm",), (*ASR, "--versions", "1.8.1,2.13.0"), folder=""),
    "short": Group(
        ("torch-nn-lstm", "torch-lstmcell-fused", "torch-lstmcell-basic"),
        ("--workload", "1x320-ce-short", "--time-steps", "5"),
        ("1x320-ce-short", "fp32"),
        "",
    ),
    "glample": Group(GLAMPLE, ("--workload", "glample-h*", "--iterations", "15")),
    "glample-forward": Group(
        GLAMPLE, ("--workload", "glample-h*", "--mode", "forward", "--iterations", "15")
    ),
    "deepbench": Group(
        ("torch-nn-lstm",),
        _deepbench("h512-b16-t25", "h512-b128-t25", "h256-b16-t150", "h256-b64-t150"),
    ),
    "deepbench-large": Group(
        ("torch-nn-lstm",),
        (
            *_deepbench("h1024-b16-t25", "h1024-b128-t25", "h2048-b16-t25", "h2048-b128-t25"),
            *("--iterations", "6", "--warmup", "1"),
        ),
    ),
    "deepbench-1536": Group(
        ("torch-nn-lstm",),
        (*_deepbench("h1536-b8-t50", "h1536-b32-t50"), "--iterations", "6", "--warmup", "1"),
    ),
    "imdb": Group(
        ("torch-nn-lstm", "keras-lstm", "mxnet-module-lstm"),
        ("--workload", "imdb-gru", "--time-steps", "40", "--profile-steps", "2"),
    ),
    "ptb": Group(
        ("torch-nn-lstm",),
        (
            *("--workload", "ptb-large", "--hidden", "200", "--features", "200"),
            *("--time-steps", "20", "--iterations", "15"),
        ),
    ),
    "ptb-cells": Group(
        ("tf-basiclstmcell", "tf-lstmblockcell"),
        ("--workload", "ptb-large", "--iterations", "6", "--warmup", "1"),
    ),
    "glample-rnn": Group(
        ("torch-nn-lstm", "keras-lstm"),
        ("--workload", "glample-rnn-h128-b*", "--iterations", "15"),
    ),
    "glample-rnn-forward": Group(
        ("torch-nn-lstm", "keras-lstm"),
        ("--workload", "glample-rnn-h128-b*", "--mode", "forward", "--iterations", "15"),
    ),
    "ptb-large": Group(
        ("torch-nn-lstm",), ("--workload", "ptb-large", "--iterations", "6", "--warmup", "1")
    ),
}


def samples(traces: Path = TRACES) -> list[Path]:
    """Return the folders of the samples in ``traces``, which may also have a developer's own runs.

    Samples are the folders that .gitignore does not ignore, and the runs in those folders.
    """
    ignored = (TRACES.parent / ".gitignore").read_text(encoding="utf-8").splitlines()
    begin = "!/traces/"
    named = [
        line[len(begin) : -1] for line in ignored if line.startswith(begin) and line[-1] == "/"
    ]
    places = [traces / name for name in sorted(named)]
    return [
        run for place in places for run in ([place] if is_run(place) else run_folders_in(place))
    ]


def sample_name(name: str, dropped: Sequence[str]) -> str:
    """Return the sample's name of a run: its name without the parts ``dropped``."""
    words = [word for word in name.split("--") if word not in dropped]
    words = [word.removeprefix(f"{dropped[0]}-") for word in words]
    return "-".join(words).replace("==", "-")


def keep(run: Run, group: Group, traces: Path) -> Path:
    """Move ``run`` into ``traces`` as a sample, without what identifies the machine or user."""
    dropped = group.dropped
    name = sample_name(run.path.name, dropped)
    turns = run.info.turn_with
    info = replace(
        run.info,
        name=name,
        command=f"lstmprof {' '.join(group.command('traces'))}",
        packages=None,
        python_executable=None,
        hardware=replace(run.info.hardware, system=None),
        profile_metadata={
            key: value
            for key, value in (run.info.profile_metadata or {}).items()
            if key not in OF_THE_MACHINE
        },
        turn_with=None if turns is None else tuple(sample_name(t, dropped) for t in turns),
    )
    write_info(run.path, info)
    shutil.rmtree(run.path / "profile", ignore_errors=True)
    place = traces / group.folder / name
    if place.exists():
        shutil.rmtree(place)
    place.parent.mkdir(exist_ok=True)
    shutil.move(run.path, place)
    return open_run(place).path


def size(folder: Path) -> int:
    """Return the total size in bytes of all files in ``folder``."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def captured(group: Group, traces: Path) -> list[Path]:
    """Capture the samples of ``group``, and return their folders."""
    with tempfile.TemporaryDirectory(dir=traces, prefix=".samples-") as folder:
        subprocess.run([sys.executable, "-m", "lstmprof", *group.command(folder)], check=True)
        return [keep(run, group, traces) for run in runs_in(Path(folder))]


README = """\
# Runs

`lstmprof capture` and `lstmprof ingest` write their runs into this folder. Git ignores the folder,
except for the samples below. So `lstmprof breakdown traces/` and `lstmprof diagnose traces/` have
results to show in a fresh clone. `lstmprof breakdown traces/torch-nn-lstm` shows one of the
samples. The runs in `studies/` are of networks from published benchmark studies; the page
[analyses/](../analyses/README.md) compares them with the numbers of these studies.

`make samples` (benchmarks/samples.py) captured them on one thread of a CPU: {machine}. Each run has
timed and profiled steps of three rounds, or of six for the ten samples of one network directly in
`traces/`; each round is a fresh process.

The column "load" is the number of processes that ran or waited for a CPU, averaged over the minute
before the run. On two cores, a load above 1 means that other programs were running.

| run | implementation, network | framework | precision | mode | captured | load | kB |
|---|---|---|---|---|---|---|---|
{rows}

A sample does not contain the interpreter's path, the version of the machine's kernel, and the raw
profiles with their metadata, because these identify the machine. `events.parquet` has the events of
the raw profiles.
"""


def readme(traces: Path) -> str:
    """Return the text of README.md about the samples in ``traces``."""
    runs = [open_run(place) for place in samples(traces)]
    machines = {
        f"{run.info.hardware.cpu_model}, {run.info.hardware.cores} cores, "
        f"{(run.info.hardware.memory_bytes or 0) / 2**30:.0f} GiB"
        for run in runs
    }
    rows = "\n".join("| " + " | ".join(_cells(run, traces)) + " |" for run in runs)
    return README.format(machine="; ".join(sorted(machines)), rows=rows)


def _cells(run: Run, traces: Path) -> list[str]:
    info = run.info
    load = info.load_average_before
    version = (info.versions or {}).get(info.framework or "")
    return [
        f"[{run.path.name}]({run.path.relative_to(traces)}/run.json)",
        f"{info.implementation}, {info.workload.name}",
        f"{info.framework} {version}",
        str(info.precision),
        str(info.mode),
        str(info.started_at)[:10],
        f"{load[0]:.1f}" if load else "–",
        f"{size(run.path) / 1e3:.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Capture the groups that ``arguments`` name, or all."""
    parser = argparse.ArgumentParser(description="Capture the sample runs of traces/ anew.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--list", action="store_true", help="show the commands, capture nothing")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.groups if name not in GROUPS]
    if unknown:
        parser.error(f"no group is called {unknown[0]}; there are {', '.join(GROUPS)}")
    if given.list:
        for name in given.groups or GROUPS:
            print(f"{name}: lstmprof {' '.join(GROUPS[name].command('traces'))}")
        return
    failed = [name for name in given.groups or GROUPS if not _is_captured(name)]
    if failed:
        sys.exit(f"not captured: {', '.join(failed)}")


def _is_captured(name: str) -> bool:
    """Capture the group ``name``; return False if it fails, so that the other groups continue."""
    try:
        paths = captured(GROUPS[name], TRACES)
    except subprocess.CalledProcessError:
        return False
    for path in paths:
        print(f"{path.relative_to(TRACES.parent)}  {size(path) / 1e3:.0f} kB")
    (TRACES / "README.md").write_text(readme(TRACES), encoding="utf-8")
    return True


if __name__ == "__main__":
    main()
