"""Files of counted stacks: threads, frames, shortened paths, and what is no such file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lstmprof.base.errors import ProfileError
from lstmprof.formats.stacks import Stack, read_stacks


def _file(folder: Path, text: str) -> Path:
    path = folder / "samples.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_stacks_with_their_threads_and_short_paths(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "thread (17): MainThread;step (/tmp/x/worker/lstmprof/capture/worker/loops/torch.py:9);"
        "f (/v/lib/python3.11/site-packages/torch/nn/a.py:3);"
        "at::_ops::add::call (/v/site-packages/torch/lib/libtorch_cpu.so) 12\n"
        "thread (18): tf_Compute;malloc (/usr/lib/x86_64-linux-gnu/libc.so.6) 1\n",
    )

    assert list(read_stacks(path)) == [
        Stack(
            "MainThread",
            (
                "step (lstmprof/capture/worker/loops/torch.py:9)",
                "f (torch/nn/a.py:3)",
                "at::_ops::add::call (torch/lib/libtorch_cpu.so)",
            ),
            12,
        ),
        Stack("tf_Compute", ("malloc (libc.so.6)",), 1),
    ]


@pytest.mark.parametrize("text", ["a;b;c\n", "7\n"])
def test_line_without_a_count_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ProfileError, match="line 1"):
        list(read_stacks(_file(tmp_path, text)))


def test_file_that_is_no_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "samples.txt.gz"
    path.write_bytes(b"plain")

    with pytest.raises(ProfileError, match=r"samples\.txt\.gz"):
        list(read_stacks(path))
