"""Measure what ``lstmprof run`` adds to a training script: at its start, per step, and at its end.

A script trains nn.LSTM, about 3 ms per step, and writes the time of each step. It runs alone and
through ``lstmprof run``, in turns. Three differences are measured:

- start: a script that imports torch and ends, alone and through ``lstmprof run``;
- step: the steps after the measured ones, compared with the same steps of the plain script;
- verdict: from the script's last statement to the end of the process, minus the same time of the
  plain script. It includes closing the profile, reading it, and the verdict.

Example: ``python benchmarks/run_script.py``
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 7
#: Number of steps of the script. lstmprof measures fewer than MEASURED of them; the steps after
#: MEASURED are compared.
STEPS, MEASURED = 400, 150
_START = "import torch\n"
_TRAINING = f"""
import json, sys, time
import torch
torch.set_num_threads(1)
lstm, head = torch.nn.LSTM(123, 128), torch.nn.Linear(128, 10)
optimizer = torch.optim.SGD([*lstm.parameters(), *head.parameters()], lr=0.01)
inputs, targets = torch.ones(20, 16, 123), torch.zeros(16, dtype=torch.int64)
times = [time.monotonic()]
for _ in range({STEPS}):
    loss = torch.nn.functional.cross_entropy(head(lstm(inputs)[0][-1]), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    times.append(time.monotonic())
json.dump(times, open(sys.argv[1], "w"))
"""


def cost(code: str, folder: Path, *, profiled: bool) -> tuple[float, float, list[float], float]:
    """Run the script ``code``, alone or through ``lstmprof run``.

    Return its wall and CPU time in seconds, the times that it wrote, and the time of its end, in
    seconds of ``time.monotonic``.
    """
    script, times = folder / "train.py", folder / "times.json"
    script.write_text(code)
    times.write_text("[]")
    plain = [sys.executable, str(script), str(times)]
    out = ("--out", str(folder / "traces"), "--force")
    wrapped = [sys.executable, "-m", "lstmprof", "run", *out, str(script), "--", str(times)]
    start = time.monotonic()
    with (folder / "output").open("w") as output:
        child = subprocess.Popen(
            wrapped if profiled else plain, stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(child.pid, 0)
    end = time.monotonic()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit((folder / "output").read_text())
    cpu_s = usage.ru_utime + usage.ru_stime
    return end - start, cpu_s, json.loads(times.read_text()), end


def main() -> None:
    """Print what ``lstmprof run`` adds to the script's start, to its steps, and at its end."""
    starts: list[tuple[float, float]] = []
    steps: list[float] = []
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(ROUNDS):
            pair = [cost(_START, folder, profiled=profiled) for profiled in (False, True)]
            starts.append((pair[1][0] - pair[0][0], pair[1][1] - pair[0][1]))
            plain, run = (cost(_TRAINING, folder, profiled=profiled) for profiled in (False, True))
            late = [
                statistics.median(b - a for a, b in itertools.pairwise(times[MEASURED:]))
                for times in (plain[2], run[2])
            ]
            steps.append(late[1] / late[0])
            ends.append((run[3] - run[2][-1]) - (plain[3] - plain[2][-1]))
    wall_s, cpu_s = (statistics.median(column) for column in zip(*starts, strict=True))
    print(f"start: {wall_s:.2f} s longer, {cpu_s:.2f} s of CPU")
    print(f"a step after the measured ones: {statistics.median(steps):.4f} times as long", end=" ")
    print(f"({min(steps):.4f} to {max(steps):.4f})")
    print(f"verdict: {statistics.median(ends):.2f} s ({min(ends):.2f} to {max(ends):.2f})")
    print(f"medians of {ROUNDS} rounds; in brackets the least and the greatest")


if __name__ == "__main__":
    main()
