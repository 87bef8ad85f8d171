"""``python -m benchmarks.gpu.questions``: answer open questions about profiles on a GPU.

Each question runs in its own process with a time limit; its answer is a line of JSON. It needs
NumPy and torch. A question about JAX's command buffers is answered by two captures of the session.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lstmprof.capture.worker.machine.meters import NvmlGpu

ROOT = Path(__file__).resolve().parents[2]
#: Time limit of one question in seconds.
LIMIT_S = 50.0
STEPS = 3
Answer = dict[str, Any]


def autocast_type(torch: Any, device: str) -> Answer:
    """Return the dtypes of nn.LSTM's output and inputs under autocast to bfloat16."""
    kind = device.partition(":")[0]
    layer, inputs = torch.nn.LSTM(64, 64).to(device), torch.randn(16, 8, 64, device=device)
    with recorded(torch, device) as events, torch.autocast(kind, torch.bfloat16):
        output, _ = layer(inputs)
    types = {
        f"{event['name']} {event['args'].get('Input type', [''])[0]}"
        for event in events
        if event["name"].endswith(("::lstm", "_cudnn_rnn", "mkldnn_rnn_layer"))
    }
    return {"output": str(output.dtype), "calls": sorted(types)}


def lost_kernels(torch: Any, device: str) -> Answer:
    """Count launches without a kernel in a profile that begins after 2 s without GPU work.

    The profile is recorded with and without one additional step at its start.
    """
    step = lstm_step(torch, device)
    answer: Answer = {}
    for first in (0, 1):
        time.sleep(2)
        with recorded(torch, device) as events:
            for _ in range(first + STEPS):
                step()
        answer[f"after {first} steps"] = linked(events)
    return answer


def replayed_graph(torch: Any, device: str) -> Answer:
    """Count the kernels in a profile of CUDA graph replays.

    The graph is captured before the first profiler session, or after it.
    """
    answer: Answer = {}
    for after in (False, True):
        if after:
            with recorded(torch, device):
                torch.zeros(1, device=device)
        data = torch.randn(256, 256, device=device)
        (data @ data).relu()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            (data @ data).relu()
        with recorded(torch, device) as events:
            for _ in range(STEPS):
                graph.replay()
            torch.cuda.synchronize()
        answer["after a session" if after else "before any session"] = linked(events)
    return answer


def algorithm(torch: Any, device: str) -> Answer:
    """Return the kernels of an LSTM with 192 and with 193 hidden units.

    Between these sizes, PyTorch changes cuDNN's algorithm.
    """
    return {
        f"hidden {hidden}": kernels_of(torch, device, lstm_step(torch, device, hidden))
        for hidden in (192, 193)
    }


def energy(torch: Any, device: str) -> Answer:
    """Return the power in watts according to the energy counter, for loads of 0.2 to 5 s."""
    gpu = NvmlGpu.of(device) if device != "cpu" else None
    data, answer = torch.randn(2048, 2048, device=device), {}
    for length_s in (0.2, 0.5, 1.0, 2.0, 5.0):
        before, began_s = gpu and gpu.energy_mj(), time.perf_counter()
        while time.perf_counter() - began_s < length_s:
            data @ data
            settle(torch, device)
        took_s, after = time.perf_counter() - began_s, gpu and gpu.energy_mj()
        known = before is not None and after is not None
        answer[f"{length_s} s"] = (after - before) / 1e3 / took_s if known else None
    return answer


def warm_up(torch: Any, device: str) -> Answer:
    """Return the times and the GPU clock of the first and some later steps, after 2 s of idling."""
    step, gpu = lstm_step(torch, device), NvmlGpu.of(device) if device != "cpu" else None
    time.sleep(2)
    rows, began_s = [], time.perf_counter()
    while time.perf_counter() - began_s < 3:
        start_s = time.perf_counter()
        step()
        clock = gpu.state()["gpu_sm_clock_mhz"] if gpu else None
        rows.append((start_s - began_s, 1e3 * (time.perf_counter() - start_s), clock))
    places = [0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, len(rows) - 1]
    chosen = [rows[place] for place in places if place < len(rows)]
    return {"at s, ms, MHz": [[round(at, 3), round(ms, 3), mhz] for at, ms, mhz in chosen]}


def bias_adds(torch: Any, device: str) -> Answer:
    """Return the kernels of linear layers with a bias, of three sizes."""
    answer: Answer = {}
    for rows, width in ((20, 1280), (512, 4096), (16384, 8192)):
        layer = torch.nn.Linear(320, width).to(device)
        data = torch.randn(rows, 320, device=device)
        answer[f"{rows} x {width}"] = kernels_of(torch, device, partial(layer, data))
    return answer


QUESTIONS: dict[str, Callable[[Any, str], Answer]] = {
    "autocast type": autocast_type,
    "lost kernels": lost_kernels,
    "replayed graph": replayed_graph,
    "algorithm": algorithm,
    "energy": energy,
    "warm-up": warm_up,
    "bias adds": bias_adds,
}


def lstm_step(torch: Any, device: str, hidden: int = 64) -> Callable[[], None]:
    """Return a training step of a small LSTM; the step waits for the GPU at its end."""
    layer = torch.nn.LSTM(hidden, hidden).to(device)
    inputs = torch.randn(20, 16, hidden, device=device)

    def step() -> None:
        layer(inputs)[0].sum().backward()
        settle(torch, device)

    step()
    return step


def settle(torch: Any, device: str) -> None:
    """Wait until the GPU has finished its work."""
    if device != "cpu":
        torch.cuda.synchronize()


@contextmanager
def recorded(torch: Any, device: str) -> Iterator[list[dict[str, Any]]]:
    """Profile the context with torch.profiler; afterwards the yielded list has the events."""
    events: list[dict[str, Any]] = []
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device != "cpu":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True) as session:
        yield events
        settle(torch, device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        session.export_chrome_trace(str(path))
        found = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    events += (event for event in found if event.get("ph") == "X" and "args" in event)


def linked(events: list[dict[str, Any]]) -> Answer:
    """Count launches, kernels, launches without a kernel, and kernels before their launch."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    calls = {e["args"].get("correlation"): e for e in events if "Launch" in e["name"]}
    seen = Counter(kernel["args"].get("correlation") for kernel in kernels)
    early = [k for k in kernels if k["ts"] < calls.get(k["args"].get("correlation"), k)["ts"]]
    without = sum(correlation not in seen for correlation in calls)
    return {
        "launches": len(calls),
        "kernels": len(kernels),
        "launches without a kernel": without,
        "kernels before their launch": len(early),
    }


def kernels_of(torch: Any, device: str, step: Callable[[], Any]) -> dict[str, int]:
    """Return name -> count of the kernels in the second call of ``step``."""
    step()
    with recorded(torch, device) as events:
        step()
    return dict(Counter(event["name"] for event in events if event.get("cat") == "kernel"))


def main() -> int:
    """Answer all questions, each in its own process, or one question in this process."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu.questions", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("traces/gpu"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--question", choices=QUESTIONS)
    asked = parser.parse_args()
    if asked.question:
        import torch

        print(json.dumps(QUESTIONS[asked.question](torch, asked.device)))
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    with (asked.out / "questions.jsonl").open("w", encoding="utf-8") as file:
        faults = 0
        for name in QUESTIONS:
            answer = answered(name, asked.device)
            faults += "fault" in answer
            print(json.dumps(answer), flush=True)
            print(json.dumps(answer), file=file, flush=True)
    return min(faults, 1)


def answered(name: str, device: str) -> Answer:
    """Answer one question in its own process; return its answer or, as a fault, its last line."""
    command = [sys.executable, "-m", "benchmarks.gpu.questions", "--question", name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    try:
        done = subprocess.run(
            [*command, "--device", device],
            **{"capture_output": True, "text": True, "timeout": LIMIT_S},
            cwd=ROOT,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return {"question": name, "fault": f"not done after {LIMIT_S:.0f} s"}
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or [""]
    if done.returncode:
        return {"question": name, "fault": lines[-1]}
    return {"question": name, "answer": json.loads(lines[-1])}


if __name__ == "__main__":
    sys.exit(main())
