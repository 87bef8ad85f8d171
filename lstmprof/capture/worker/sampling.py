"""Run steps without a profiler while py-spy or perf samples the call stacks.

py-spy pauses the worker for each sample, and perf interrupts the worker in the kernel. The output
has one stack per line, in the format of flame graphs:
``thread;outermost;…;innermost count``.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import ctypes
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import IO, Any, Callable, Counter, Dict, Iterable, List, Optional, Tuple

from lstmprof.capture.request import PERF, PY_SPY, CaptureRequest
from lstmprof.capture.worker.profiling import compressed

#: Operation of prctl(2) that lets a given process attach to this process, even if Yama's
#: ptrace_scope is 1 (linux/prctl.h).
PR_SET_PTRACER = 0x59616D61
#: Samples per second; a prime number, so that sampling does not keep pace with the steps.
RATE_HZ = 197
#: Bytes of the stack that perf copies per sample, to unwind the frames later.
STACK_BYTES = 16384
#: Seconds that a sampler may need besides the sampling time, because py-spy first reads the symbols
#: of all libraries.
PATIENCE_S = 120.0

#: File in which oneDNN names its generated code: ``start length name`` per line (perf's format).
JIT_MAP = "/tmp/perf-{}.map"
NAME_GENERATED_CODE = {"ONEDNN_JIT_PROFILE": "2"}  # 2: write the file above

STACKS = "samples.txt"
_ADDRESS = re.compile(r"\b0x([0-9a-f]+) \((?:\?|[^();]*perf-\d+\.map)\)")
_PERF_DATA, _LOG = "perf.data", "sampler.log"
_ABSENT = {
    PY_SPY: "py-spy is not installed: pip install 'lstmprof[sampler]'",
    PERF: "perf is not installed: install linux-perf (Debian) or linux-tools (Ubuntu)",
}


@dataclasses.dataclass(frozen=True)
class Sampled:
    """The call stacks of the sampled pass, or the reason why there are none."""

    file: Optional[str] = None
    reason: Optional[str] = None
    version: Optional[str] = None
    steps: Optional[int] = None

    def facts(self, request: CaptureRequest) -> Dict[str, Any]:
        return {
            "sampler": request.sampler,
            "version": self.version,
            "rate_hz": RATE_HZ if self.file else None,
            "steps": self.steps,
            "reason": self.reason,
        }


def sampled(step: Callable[[], Any], request: CaptureRequest, folder: str) -> Sampled:
    """Run steps while the sampler runs; write the sampled stacks to a file."""
    assert request.sampler is not None
    binary = shutil.which(request.sampler)
    if binary is None:
        return Sampled(reason=_ABSENT[request.sampler])
    if not sys.platform.startswith("linux"):
        return Sampled(reason="{} records native frames on Linux only".format(request.sampler))
    stacks, data = os.path.join(folder, STACKS), os.path.join(folder, _PERF_DATA)
    recorded = stacks if request.sampler == PY_SPY else data
    patience_s = request.sampler_s + PATIENCE_S
    with open(os.path.join(folder, _LOG), "w+b") as log:
        steps, status = _stepped(step, _command(binary, request, recorded), log, patience_s)
        log.seek(0)
        words = log.read().decode("utf-8", "replace")
    os.remove(log.name)
    if status != 0 or not os.path.exists(recorded):
        return Sampled(reason="{}: {}".format(request.sampler, _fault(words, status)))
    if request.sampler == PERF:
        _collapse(binary, data, stacks)
        os.remove(data)
    _name_generated_code(stacks, JIT_MAP.format(os.getpid()))
    return Sampled(compressed(stacks, stacks + ".gz"), None, _version(binary), steps)


def _command(binary: str, request: CaptureRequest, path: str) -> List[str]:
    pid, seconds = str(os.getpid()), str(max(1, round(request.sampler_s)))
    options = ["--pid", pid, "--output", path]
    if request.sampler == PY_SPY:
        options += ["--native", "--threads", "--full-filenames", "--format", "raw"]
        return [binary, "record", *options, "--rate", str(RATE_HZ), "--duration", seconds]
    options += ["--event", "cpu-clock", "--call-graph", "dwarf,{}".format(STACK_BYTES)]
    return [binary, "record", *options, "--freq", str(RATE_HZ), "--", "sleep", seconds]


def _stepped(
    step: Callable[[], Any], command: List[str], log: IO[bytes], patience_s: float
) -> Tuple[int, int]:
    """Run steps until the sampler ends; return (steps, exit status)."""
    sampler = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, sampler.pid, 0, 0, 0)
        # let the sampler use the parent process's CPUs, not only the worker's CPUs
        with contextlib.suppress(OSError):
            os.sched_setaffinity(sampler.pid, os.sched_getaffinity(os.getppid()))
        steps, deadline = 0, time.monotonic() + patience_s
        while sampler.poll() is None and time.monotonic() < deadline:
            step()
            steps += 1
    finally:
        sampler.kill()
        sampler.wait()
    return steps, sampler.returncode


def _name_generated_code(stacks: str, map_path: str) -> None:
    """Replace the addresses of generated code by names in the file ``stacks``."""
    try:
        with open(map_path, encoding="utf-8", errors="replace") as lines:
            names = generated(lines)
    except OSError:
        return  # no code was generated
    os.remove(map_path)
    with open(stacks, encoding="utf-8", errors="replace") as file:
        text = _ADDRESS.sub(lambda found: _named(found, names), file.read())
    with open(stacks, "w", encoding="utf-8") as file:
        file.write(text)


def generated(lines: Iterable[str]) -> List[Tuple[int, int, str]]:
    """Return (start, end, name) of each piece of generated code, sorted by address."""
    pieces = []
    for line in lines:
        start, length, name = line.split(None, 2)
        pieces.append((int(start, 16), int(start, 16) + int(length, 16), name.strip()))
    return sorted(pieces)


def _named(address: "re.Match[str]", names: List[Tuple[int, int, str]]) -> str:
    place = int(address.group(1), 16)
    at = bisect.bisect_right(names, (place, sys.maxsize, "")) - 1
    if at < 0 or place >= names[at][1]:
        return address.group(0)
    return "{} (generated)".format(names[at][2])


def _fault(words: str, status: int) -> str:
    """Explain in one line why a sampler failed."""
    if status == -signal.SIGKILL:
        return "was stopped {:g} s after its time limit".format(PATIENCE_S)
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    faults = [
        line for line in lines if re.match(r"(?i)error|no permission|.*denied|.*paranoid", line)
    ]
    message = (faults or lines or ["no message"])[0]
    return "{} (exit status {})".format(message, status)


def _version(binary: str) -> Optional[str]:
    answer = subprocess.run(
        [binary, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return answer.stdout.decode("utf-8", "replace").strip() or None


def _collapse(binary: str, data: str, place: str) -> None:
    """Convert perf's recording to a file with one stack per line."""
    fields = ["--no-inline", "--fields", "comm,tid,ip,sym,dso"]
    command = [binary, "script", "--input", data, *fields]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as script:
        assert script.stdout is not None
        counts = collapsed(script.stdout)
    with open(place, "w", encoding="utf-8") as file:
        for stack, count in counts.items():
            file.write("{} {}\n".format(stack, count))


def collapsed(lines: Iterable[str]) -> Counter[str]:
    """Count the stacks in perf script's output: ``{"thread (7): main;f": 3}``."""
    counts: Counter[str] = collections.Counter()
    thread = ""
    frames: List[str] = []
    for line in lines:
        if not line.strip():
            if frames:
                # reverse the frames, because perf prints the innermost frame first
                counts[";".join([thread, *reversed(frames)])] += 1
            frames = []
        elif not line[0].isspace():
            *name, tid = line.split()
            thread = "thread ({}): {}".format(tid, " ".join(name))
        else:
            address, _, frame = line.strip().partition(" ")
            # use the address as the name of a frame without a symbol, as py-spy does
            frames.append(frame.replace(";", ",").replace("[unknown]", "0x" + address))
    return counts
