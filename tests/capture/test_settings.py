"""Settings as a worker finds them: in its thread, its process, its machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lstmprof.capture.worker.machine import settings
from lstmprof.capture.worker.machine.settings import (
    allocator,
    chosen,
    cpu_quota,
    denormals,
    environment,
)

FLUSH_AND_READ = """
import json
from lstmprof.capture.worker.machine import host, settings
before = settings.recorded({})
host.flush_denormals()
print(json.dumps([before, settings.recorded({})]))
"""


def test_what_a_thread_does_with_denormals_is_seen_by_trying() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FLUSH_AND_READ], capture_output=True, text=True, check=True
    )
    before, after = json.loads(run.stdout)
    assert (before["flush_to_zero"], before["denormals_are_zero"]) == (False, False)
    if sys.platform == "linux":  # host.flush_denormals does nothing elsewhere, nor on Arm
        assert (after["flush_to_zero"], after["denormals_are_zero"]) == (True, True)


@pytest.mark.parametrize(
    ("bits", "word"), [([0, 0], "flushed"), ([1 << 17, 1 << 17], "kept"), ([0, 1 << 17], "both")]
)
def test_what_an_operator_did_with_denormals(bits: list[int], word: str) -> None:
    assert denormals(np.array(bits, np.int32).view(np.float32)) == word


def test_variables_of_libraries_are_kept_and_secrets_are_not() -> None:
    variables = {
        "OMP_WAIT_POLICY": "ACTIVE",
        "MALLOC_TOP_PAD_": "0",
        "LD_PRELOAD": "/usr/lib/libjemalloc.so.2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_TOKEN_example": "secret",  # Terraform's
        "TF_VAR_password": "secret",
        "HOME": "/home/nobody",
        "OMP_NUM_THREADS": "1",  # what --threads says
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/capture",  # another in every capture
    }
    kept = environment(variables)
    assert list(kept) == [
        "LD_PRELOAD",
        "MALLOC_TOP_PAD_",
        "OMP_WAIT_POLICY",
        "TF_ENABLE_ONEDNN_OPTS",
    ]


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (["/usr/lib/libc.so.6", "/usr/lib/libjemalloc.so.2"], "jemalloc"),
        (["/usr/lib/libc.so.6", "/opt/libtcmalloc_minimal.so.4"], "tcmalloc"),
        (["/lib/ld-musl-x86_64.so.1"], "musl"),
        (["/usr/lib/libc.so.6"], "glibc"),
        (None, None),
    ],
)
def test_the_allocator_is_the_one_that_is_loaded(files: list[str] | None, name: str | None) -> None:
    assert allocator(files) == name


def test_the_word_in_brackets_is_chosen() -> None:
    assert chosen("always [madvise] never\n") == "madvise"
    assert chosen(None) is None


@pytest.mark.parametrize(
    ("groups", "files", "cpus"),
    [
        ("0::/pod/job", {"pod/cpu.max": "150000 100000", "pod/job/cpu.max": "max 100000"}, 1.5),
        ("0::/pod/job", {"pod/cpu.max": "max 100000"}, None),
        ("0::/", {}, None),
        (
            "4:memory:/job\n3:cpu,cpuacct:/job",
            {
                "cpu/job/cpu.cfs_quota_us": "50000",
                "cpu/job/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            "3:cpu:/job",
            {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"},
            None,
        ),
    ],
)
def test_the_quota_is_the_least_of_the_cgroup_and_those_above_it(
    groups: str, files: dict[str, str], cpus: float | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cpu_quota(str(tmp_path), groups) == cpus


def test_all_that_is_recorded_has_a_field() -> None:
    from lstmprof.runs.metadata import run_info

    info = run_info({"settings": settings.recorded({"onednn": True})})
    assert info.settings.onednn is True
    assert info.settings.gc_enabled is not None
