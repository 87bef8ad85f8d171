"""Profiles of a few lines of PyTorch on a CPU, as a stranger makes them: no run.json of ours."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from causes import NOTES

import lstmprof as lp
from lstmprof.diagnose.remedies import Advice

STEPS = 5
#: Numbers of a sentence, which differ from run to run.
_NUMBER = re.compile(r"\d[\d.,]*")
_UNIT = re.compile(r"# (?:ns|µs|ms|s)\b")


def profiled(path: Path, step: Callable[[], object], *, with_stack: bool = False) -> lp.Run:
    """``STEPS`` marked steps in torch.profiler, with shapes, exported as a Chrome trace.

    ``with_stack`` records modules and functions of Python.
    """
    from torch.profiler import ProfilerActivity, profile, schedule

    def export(profiler: Any) -> None:
        profiler.export_chrome_trace(str(path))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):  # TorchScript compiles in the second, and in the third
            step()
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=STEPS),
            record_shapes=True,
            with_stack=with_stack,
            on_trace_ready=export,
        ) as profiler:
            for _ in range(STEPS + 1):
                step()
                profiler.step()
    return lp.read(path)


def advice(run: lp.Run) -> dict[str, Advice]:
    """The advice on a run alone, by name."""
    (diagnosis,) = lp.diagnose([run])
    return {advice.name: advice for advice in diagnosis.remedies}


def reads_like_its_example(given: Advice) -> bool:
    """Whether the evidence is that of the catalogue's example but for its numbers."""
    seen: str = NOTES[given.name]["example"]["seen"]
    return _without_numbers(given.seen) == _without_numbers(seen)


def _without_numbers(sentence: str) -> str:
    return _UNIT.sub("# s", _NUMBER.sub("#", sentence))
