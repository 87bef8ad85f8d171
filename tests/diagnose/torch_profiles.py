"""Profiles of a few lines of PyTorch on a CPU, as a stranger makes them: no run.json of ours.

What other processes took of the CPU is cut out of them. A step is a sequence of instants at which
an event begins or ends; between two of them each step is as long as the shortest of all steps::

    step 1   |--mm--|   |----add----|            |--mm--| |--add--|
    step 2   |--mm------------|  |--add--|  ▶    |--mm--| |--add--|
    step 3   |--mm--| |---add---|                |--mm--| |--add--|
"""

from __future__ import annotations

import itertools
import json
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lstmprof as lp
from lstmprof.diagnose.remedies import TABLE

STEPS = 5
#: What profiler.step marks.
_STEP = "ProfilerStep#"
#: Events that last, and the ends of arrows.
_TIMED = ("X", "s", "f")
#: Numbers of a sentence, which differ from run to run.
_NUMBER = re.compile(r"\d[\d.,]*")
_UNIT = re.compile(r"# (?:ns|µs|ms|s)\b")


def profiled(path: Path, step: Callable[[], object]) -> lp.Run:
    """``STEPS`` marked steps in torch.profiler, with shapes, exported as a Chrome trace."""
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
            on_trace_ready=export,
        ) as profiler:
            for _ in range(STEPS + 1):
                step()
                profiler.step()
    path.write_text(json.dumps(undisturbed(json.loads(path.read_text("utf-8")))), "utf-8")
    return lp.read(path)


def undisturbed(trace: dict[str, Any]) -> dict[str, Any]:
    """The steps of a trace, as short as their parts; as it is, where these are not the same."""
    timed = [event for event in trace["traceEvents"] if event["ph"] in _TIMED]
    steps = sorted(
        (event for event in timed if event["name"].startswith(_STEP)), key=lambda e: e["ts"]
    )
    instants = [_instants(timed, step) for step in steps]
    if len({tuple(instant.what for instant in some) for some in instants}) != 1:
        return trace
    gaps = [[b.at - a.at for a, b in itertools.pairwise(some)] for some in instants]
    least = [min(same) for same in zip(*gaps, strict=True)]
    places = list(itertools.accumulate(least, initial=instants[0][0].at))
    for number, some in enumerate(instants):
        shift = number * (places[-1] - places[0] + 1.0)
        for place, instant in zip(places, some, strict=True):
            if instant.is_end:
                instant.event["dur"] = round(place + shift - instant.event["ts"], 3)
            else:
                instant.event["ts"] = round(place + shift, 3)
    kept = [event for event in trace["traceEvents"] if event["ph"] not in _TIMED]
    kept += [instant.event for some in instants for instant in some if not instant.is_end]
    return {**trace, "traceEvents": kept}


class _Instant(NamedTuple):
    """When an event begins or ends, in µs."""

    at: float
    is_end: bool
    event: dict[str, Any]

    @property
    def what(self) -> tuple[bool, str, str]:
        """What it is in every step."""
        name = self.event["name"]
        return self.is_end, self.event["ph"], _STEP if name.startswith(_STEP) else name


def _instants(events: Sequence[dict[str, Any]], step: dict[str, Any]) -> list[_Instant]:
    """Those of ``step`` and of what lies in it, in order."""
    within = [e for e in events if step["ts"] <= e["ts"] <= step["ts"] + step["dur"]]
    begins = [_Instant(e["ts"], False, e) for e in within]
    ends = [_Instant(e["ts"] + e["dur"], True, e) for e in within if "dur" in e]
    return sorted([*begins, *ends], key=lambda instant: instant.at)


def told(run: lp.Run) -> dict[str, str]:
    """Name → sentence of the remedies that a run alone is told."""
    (diagnosis,) = lp.diagnose([run])
    return {advice.name: advice.sentence for advice in diagnosis.remedies}


def reads_like_its_example(name: str, sentence: str) -> bool:
    """Whether ``sentence`` is that of the catalogue's example but for its numbers."""
    row = next(row for row in TABLE if row.name == name)
    return row.example is not None and _without_numbers(sentence) == _without_numbers(
        row.example.told
    )


def _without_numbers(sentence: str) -> str:
    return _UNIT.sub("# s", _NUMBER.sub("#", sentence))
