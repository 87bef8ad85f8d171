"""What is asked of a recording: what it holds of a rank, and what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from lstmprof.breakdown.lacks.advice import Advice, advice_for
from lstmprof.breakdown.mean_step import device_word
from lstmprof.events.annotate import MEASURED
from lstmprof.events.annotate.recorded import Recorded
from lstmprof.numbers import cropped
from lstmprof.runs.metadata import RunInfo

_STACKS = "Python stacks"
SHAPES = "input shapes"
ALLOCATIONS = "allocations"
#: Settings of ``torch.profiler`` that cost the host time at each op.
_COSTLY = {
    "with_stack": _STACKS,
    "with_modules": "modules",
    "profile_memory": ALLOCATIONS,
    "record_shapes": SHAPES,
    "with_flops": "FLOP counts",
}
#: Formats of frameworks in which an op runs on a GPU that is there, unless it is told otherwise.
_GPU_BY_DEFAULT = ("xplane", "trace_viewer", "tf1_timeline")
#: Characters of an accelerator's name.
_WIDTH = 60


@dataclass(frozen=True)
class Recording:
    """What was recorded of one rank, run.json, and how many ranks the run has."""

    has: Recorded
    info: RunInfo
    ranks: int = 1

    @property
    def advice(self) -> Advice:
        """How to record what is missing with the profiler that was used."""
        return advice_for(self.info.profile_format)

    @property
    def captured(self) -> bool:
        """Whether lstmprof captured the run: what profiling changed is measured there."""
        return self.info.source in MEASURED

    @property
    def silent(self) -> bool:
        """Whether no device has an activity."""
        return not self.has.activities

    @property
    def tpu(self) -> str | None:
        """The first TPU that the profile names."""
        return next((name for name in self.info.accelerators if "TPU" in name), None)

    @property
    def used_gpu(self) -> bool:
        """Whether the host says that it gave a GPU work, or its like; on a CPU it did not."""
        has, info = self.has, self.info
        if info.device == "cpu":
            return False
        is_default = bool(info.accelerators) and info.profile_format in _GPU_BY_DEFAULT
        asked_for = info.device not in (None, "cpu")
        return bool(has.handed_over or has.gpu_ops or (has.host_events and is_default) or asked_for)

    @property
    def model(self) -> str:
        """The first accelerator that the profile names."""
        return cropped(next(iter(self.info.accelerators), "a GPU"), _WIDTH)

    @property
    def device_word(self) -> str:
        """``device`` where the accelerator that is named is no GPU, else ``GPU``."""
        return device_word(self.model)

    @property
    def settings(self) -> list[str]:
        """What the profiler recorded that costs the host time, as far as the profile tells."""
        metadata = self.info.profile_metadata or {}
        on = [text for key, text in _COSTLY.items() if metadata.get(key) in (1, "1")]
        if not self.has.python_frames:
            return on
        return [f"{_STACKS} ({self.has.python_frames:,} frames)", *(t for t in on if t != _STACKS)]

    @property
    def ops(self) -> int:
        """The ops that are accounted for: those of the marked steps, where any is."""
        return self.has.ops_in_steps if self.has.steps else self.has.ops

    @property
    def lost_between(self) -> int:
        """Launches without an activity between such that have one."""
        return self.has.lost - self.has.lost_first - self.has.lost_last

    @property
    def missing_steps(self) -> int:
        """Numbers between those of the first and the last step that no step has."""
        first, last = self.has.first_step, self.has.last_step
        return 0 if first is None or last is None else last - first + 1 - self.has.steps
