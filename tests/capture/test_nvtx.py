"""The NVTX ranges, recorded for real by a small library that NVTX loads as its tool."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import CaptureRequest
from lstmprof.workloads import Workload

PHASES = ("input", "forward", "loss", "backward", "optimizer")

#: The function tables and their places: nvtx3/nvtxDetail/nvtxTypes.h (CUDA 13).
TOOL = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color;
                 int32_t payload_type, reserved; uint64_t payload; int32_t message_type;
                 const char *message; } Attributes;
typedef struct { size_t size; int (*table)(int, void ****, unsigned *); } Callbacks;

static FILE *out(void) {
    static FILE *file;
    return file ? file : (file = fopen(getenv("NVTX_TEST_LOG"), "a"));
}
static void *create(const char *name) { return strdup(name); }
static void *string(void *domain, const char *text) { return strdup(text); }
static int push(void *domain, const Attributes *range) {
    fprintf(out(), "%s push %s\n", (char *)domain, range->message); fflush(out()); return 0;
}
static int pop(void *domain) {
    fprintf(out(), "%s pop\n", (char *)domain); fflush(out()); return 0;
}

int InitializeInjectionNvtx2(const void *(*tables)(uint32_t)) {
    const Callbacks *callbacks = tables(1);
    void ***core2; unsigned size;
    if (!callbacks || !callbacks->table(5, &core2, &size)) return 0;
    *core2[4] = push; *core2[5] = pop; *core2[10] = string; *core2[12] = create;
    return 1;
}
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc to compile the recording tool with")
    source, library = tmp_path / "tool.c", tmp_path / "tool.so"
    source.write_text(TOOL)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    return library


@pytest.mark.parametrize(
    ("name", "phases"), [("torch-lstmcell-basic", PHASES), ("jax-scan", ("input", "program"))]
)
def test_a_tool_sees_every_step_and_its_phases(
    name: str, phases: tuple[str, ...], tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvtx")
    pytest.importorskip(name.partition("-")[0])
    log = tool.with_name("ranges.log")
    monkeypatch.setenv("NVTX_INJECTION64_PATH", os.fspath(tool))
    monkeypatch.setenv("NVTX_TEST_LOG", os.fspath(log))
    workload = Workload("tiny", 1, 4, False, 2, 5, 3, 3, "ce")
    asked = CaptureRequest(
        name, workload, "cpu", iterations=2, warmup=1, profile_steps=2, peaks=False
    )
    capture(asked, tool.with_name("scratch"), lambda line: None)
    ours = [
        line.partition(" ")[2]
        for line in log.read_text().splitlines()
        if line.startswith("lstmprof ")
    ]
    one_step = ["push step", *(part for p in phases for part in (f"push {p}", "pop")), "pop"]
    # warm-up, a timed step, the profile, a step that does not count, a timed step; the session
    # thrown away has no ranges
    assert ours == one_step * (1 + 1 + 2 + 1 + 1)
