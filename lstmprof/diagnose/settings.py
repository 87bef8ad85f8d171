"""Settings that differ between two runs: what changes the speed of the same code.

Only what is known of both is compared, and a difference alone is no cause: ``reasons`` takes it for
one where two runs of one implementation make the same calls and these are slower in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from lstmprof.numbers import cropped, listed, number_of
from lstmprof.runs.metadata import RunInfo

DENORMALS, ANOMALY, ONEDNN = "denormals", "anomaly mode", "oneDNN"
#: What a variable is that one run has and the other has not.
UNSET = "unset"
#: So many are told by name.
_MOST_LISTED = 4


@dataclass(frozen=True)
class Setting:
    """One setting: what it is called, and its value in a run; None is unknown.

    ``slower`` is the value that costs time, None where either may.
    """

    words: str
    value: Callable[[RunInfo], Any]
    slower: Any = None


@dataclass(frozen=True)
class Disagreement:
    """A setting that differs, with its values in words: what is the case in the slow run first.

    ``fits``: it may be why that run is slower, not where the fast one has what costs time.
    """

    setting: str
    slow: str
    fast: str
    fits: bool = True

    def __str__(self) -> str:
        return f"{self.setting} {self.slow} against {self.fast}"


def _at(place: str) -> Callable[[RunInfo], Any]:
    return lambda info: reduce(getattr, place.split("."), info)


def denormals(info: RunInfo) -> str | None:
    """What became of denormal numbers: in the framework's operators, else in the step's thread."""
    flushed = info.denormals_flushed
    of_thread = None if flushed is None else "flushed" if flushed else "kept"
    return info.settings.framework_denormals or of_thread


#: In the order in which they are told.
SETTINGS = (
    Setting(DENORMALS, denormals),
    Setting("flushing to zero in its thread", _at("settings.flush_to_zero"), False),
    Setting("denormals as zero in its thread", _at("settings.denormals_are_zero"), False),
    Setting(ANOMALY, _at("settings.anomaly_mode"), True),
    Setting(ONEDNN, _at("settings.onednn")),
    Setting("autograd", _at("settings.grad_mode"), True),
    Setting("deterministic algorithms", _at("settings.deterministic"), True),
    Setting("cuDNN deterministic", _at("settings.cudnn_deterministic"), True),
    Setting("cuDNN benchmark", _at("settings.cudnn_benchmark"), False),
    Setting("TF32 in products", _at("settings.matmul_tf32"), False),
    Setting("TF32 in cuDNN", _at("settings.cudnn_tf32"), False),
    Setting("precision of products", _at("settings.matmul_precision")),
    Setting("BLAS", _at("settings.blas")),
    Setting("threads within an operator", _at("settings.intra_op_threads")),
    Setting("threads between operators", _at("settings.inter_op_threads")),
    Setting("garbage collector", _at("settings.gc_enabled"), True),
    Setting("tracer of Python", _at("settings.python_traced"), True),
    Setting("malloc", _at("settings.allocator")),
    Setting("nice", _at("settings.nice")),
    Setting("transparent huge pages", _at("settings.transparent_huge_pages")),
    Setting("CPU quota", _at("settings.cpu_quota")),
    Setting("CPU governor", _at("hardware.cpu_governor")),
)
_OF_THE_THREAD = {"flushing to zero in its thread", "denormals as zero in its thread"}


def shared_cpus(info: RunInfo) -> str | None:
    """``5 threads share 2 CPUs`` where a run has more threads than CPUs; None where not known."""
    threads = info.settings.intra_op_threads or info.threads
    limits = [float(len(info.affinity))] if info.affinity else []
    limits += [info.settings.cpu_quota] if info.settings.cpu_quota else []
    room = min(limits, default=None)
    if threads is None or room is None or threads <= room:
        return None
    return f"{threads} threads share {number_of(room, 'CPU', 'CPUs')}"


def disagreements(fast: RunInfo, slow: RunInfo) -> tuple[Disagreement, ...]:
    """The settings that are known of both and differ."""
    differ = (*_of_settings(fast, slow), *_of_variables(fast, slow))
    told = {d.setting for d in differ}
    return tuple(d for d in differ if DENORMALS not in told or d.setting not in _OF_THE_THREAD)


def _of_settings(fast: RunInfo, slow: RunInfo) -> Iterator[Disagreement]:
    for setting in SETTINGS:
        theirs, own = setting.value(fast), setting.value(slow)
        if theirs is not None and own is not None and theirs != own:
            fits = setting.slower is None or own == setting.slower
            yield Disagreement(setting.words, _shown(own), _shown(theirs), fits)


def _of_variables(fast: RunInfo, slow: RunInfo) -> Iterator[Disagreement]:
    theirs, own = fast.settings.environment, slow.settings.environment
    if theirs is None or own is None:
        return
    for name in sorted(theirs.keys() | own.keys()):
        if theirs.get(name) != own.get(name):
            yield Disagreement(name, own.get(name, UNSET), theirs.get(name, UNSET))


def listing(differences: Sequence[Disagreement]) -> str:
    """The first few of them in words."""
    more = len(differences) - _MOST_LISTED
    shown = [cropped(str(difference)) for difference in differences[:_MOST_LISTED]]
    return listed([*shown, f"{more} more"] if more > 0 else shown)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
