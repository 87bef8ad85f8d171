"""Find settings that differ between two runs and may change the speed, such as BLAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from lstmprof.base.numbers import cropped, listed, number_of
from lstmprof.runs.metadata import RunInfo

DENORMALS, ANOMALY, ONEDNN = "denormals", "anomaly mode", "oneDNN"
#: Names of the two CPU flags for denormals.
FLUSH, AS_ZERO = "flush to zero", "denormals are zero"
#: Value of an environment variable that is not set.
UNSET = "unset"
#: Largest number of differences that a text lists. The others are only counted.
_MOST_LISTED = 4


@dataclass(frozen=True)
class Setting:
    """A setting that may change speed, and its slower value if known."""

    words: str
    value: Callable[[RunInfo], Any]
    slower: Any = None


@dataclass(frozen=True)
class Disagreement:
    """A setting that differs between two runs."""

    setting: str
    slow: str
    fast: str
    fits: bool = True  # it may explain why one run is slower

    def __str__(self) -> str:
        return f"{self.setting} {self.slow} instead of {self.fast}"


def _at(field: str) -> Callable[[RunInfo], Any]:
    return lambda info: reduce(getattr, field.split("."), info)


def denormals(info: RunInfo) -> str | None:
    """Return whether denormals are ``flushed`` to zero or ``kept``."""
    flushed = info.denormals_flushed
    thread_words = None if flushed is None else "flushed" if flushed else "kept"
    return info.settings.framework_denormals or thread_words


#: Settings to compare, in the order in which differences are listed.
SETTINGS = (
    Setting(DENORMALS, denormals),
    Setting(FLUSH, _at("settings.flush_to_zero"), False),
    Setting(AS_ZERO, _at("settings.denormals_are_zero"), False),
    Setting(ANOMALY, _at("settings.anomaly_mode"), True),
    Setting(ONEDNN, _at("settings.onednn")),
    Setting("autograd", _at("settings.grad_mode"), True),
    Setting("deterministic algorithms", _at("settings.deterministic"), True),
    Setting("cuDNN deterministic", _at("settings.cudnn_deterministic"), True),
    Setting("cuDNN benchmark", _at("settings.cudnn_benchmark"), False),
    Setting("TF32 in matmuls", _at("settings.matmul_tf32"), False),
    Setting("TF32 in cuDNN", _at("settings.cudnn_tf32"), False),
    Setting("matmul precision", _at("settings.matmul_precision")),
    Setting("BLAS", _at("settings.blas")),
    Setting("intra-op threads", _at("settings.intra_op_threads")),
    Setting("inter-op threads", _at("settings.inter_op_threads")),
    Setting("garbage collector", _at("settings.gc_enabled"), True),
    Setting("Python tracing", _at("settings.python_traced"), True),
    Setting("malloc", _at("settings.allocator")),
    Setting("nice", _at("settings.nice")),
    Setting("transparent huge pages", _at("settings.transparent_huge_pages")),
    Setting("CPU quota", _at("settings.cpu_quota")),
    Setting("CPU governor", _at("hardware.cpu_governor")),
)
_THREAD_FLAGS = {FLUSH, AS_ZERO}


def shared_cpus(info: RunInfo) -> str | None:
    """Return ``5 threads share 2 CPUs`` if a run has more threads than CPUs."""
    threads = info.settings.intra_op_threads or info.threads
    limits = [float(len(info.affinity))] if info.affinity else []
    limits += [info.settings.cpu_quota] if info.settings.cpu_quota else []
    room = min(limits, default=None)
    if threads is None or room is None or threads <= room:
        return None
    return f"{threads} threads share {number_of(room, 'CPU', 'CPUs')}"


def disagreements(fast: RunInfo, slow: RunInfo) -> tuple[Disagreement, ...]:
    """Return the settings that are known for both runs and differ."""
    differ = []
    for setting in SETTINGS:
        theirs, own = setting.value(fast), setting.value(slow)
        if theirs is not None and own is not None and theirs != own:
            fits = setting.slower is None or own == setting.slower
            differ.append(Disagreement(setting.words, _shown(own), _shown(theirs), fits))
    there, here = fast.settings.environment, slow.settings.environment
    if there is not None and here is not None:
        for name in sorted(there.keys() | here.keys()):
            if there.get(name) != here.get(name):
                differ.append(Disagreement(name, here.get(name, UNSET), there.get(name, UNSET)))
    names = {d.setting for d in differ}
    return tuple(d for d in differ if DENORMALS not in names or d.setting not in _THREAD_FLAGS)


def listing(differences: Sequence[Disagreement]) -> str:
    """Return the first differences as text, and how many more there are."""
    more = len(differences) - _MOST_LISTED
    shown = [cropped(str(difference)) for difference in differences[:_MOST_LISTED]]
    return listed([*shown, f"{more} more"] if more > 0 else shown)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
