"""Read the settings that change the speed of steps, in the process that runs the steps.

The worker reads the settings after the timing, because an imported library may change a setting.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from typing import Any, Dict, List, Optional

from lstmprof.capture.worker.machine import host
from lstmprof.capture.worker.sampling import NAME_GENERATED_CODE

#: Prefixes of environment variables that may influence a step. The prefix TF_ alone
#: would also match Terraform's variables, which may be secret.
PREFIXES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "ONEDNN_", "DNNL_"),
    *("ATEN_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "XLA_", "JAX_", "PYTENSOR_"),
    *("THEANO_", "MXNET_", "CHAINER_"),
    *("TF_ENABLE_", "TF_DISABLE_", "TF_NUM_", "TF_USE_", "TF_GPU_", "TF_FORCE_GPU_", "TF_XLA_"),
    *("TF_DETERMINISTIC_", "TF_CUDNN_", "TF_ONEDNN_", "TF_MKL_", "TF_OVERRIDE_GLOBAL_"),
    *("CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_TF32", "MALLOC_", "MIMALLOC_", "TCMALLOC_"),
    *("LD_PRELOAD", "GLIBC_TUNABLES", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHON_GIL"),
)
#: Environment variables that lstmprof omits from run.json as redundant or irrelevant.
SET_BY_CAPTURE = (
    *host.THREAD_VARIABLES,
    "CUDA_VISIBLE_DEVICES",
    "TORCHINDUCTOR_CACHE_DIR",
    *NAME_GENERATED_CODE,
)
#: Part of a library's file name -> name of the malloc in the library.
ALLOCATORS = (("jemalloc", "jemalloc"), ("tcmalloc", "tcmalloc"), ("mimalloc", "mimalloc"))
CGROUPS = "/sys/fs/cgroup"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"

#: float32 bits of 2⁻¹²⁶, the smallest normal number, and of 2⁻¹³³, a denormal number.
SMALLEST_NORMAL, DENORMAL = 1 << 23, 1 << 16
#: Number of elements of the test array, so many that a framework uses all its threads.
DENORMALS = 1 << 18


def recorded(of_framework: Dict[str, Any]) -> Dict[str, Any]:
    """Return run.json's settings; the thread that runs the steps must call this."""
    import gc

    # find the tools, six at most, that monitor the interpreter (Python 3.12 and later)
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = [] if monitoring is None else [monitoring.get_tool(number) for number in range(6)]
    mapped = host.text_of("/proc/self/maps")
    return dict(
        of_framework,
        flush_to_zero=_vanishes(SMALLEST_NORMAL, 0.5),
        denormals_are_zero=_vanishes(DENORMAL, 2.0**40),
        gc_enabled=gc.isenabled(),
        python_traced=bool(sys.gettrace() or sys.getprofile() or any(tools)),
        allocator=allocator(
            None if mapped is None else re.findall(r" (/\S+)$", mapped, re.MULTILINE)
        ),
        nice=os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else None,
        transparent_huge_pages=chosen(host.text_of(HUGE_PAGES)),
        cpu_quota=cpu_quota(CGROUPS, host.text_of("/proc/self/cgroup") or ""),
        environment=environment(dict(os.environ)),
    )


def _vanishes(bits: int, factor: float) -> bool:
    """Return whether float32(``bits``) times ``factor`` is 0 in the calling thread."""
    import numpy as np

    numbers = np.full(8, bits, np.int32).view(np.float32)
    return not (numbers * np.float32(factor)).view(np.int32).any()


def denormal_numbers() -> Any:
    """Return an array of denormals, to test whether a framework flushes denormals."""
    import numpy as np

    return np.full(DENORMALS, DENORMAL, np.int32).view(np.float32)


def denormals(doubled: Any) -> str:
    """Return ``kept``, ``flushed`` or ``both``: the fate of the doubled denormals."""
    import numpy as np

    is_kept = np.asarray(doubled).view(np.int32) != 0
    if is_kept.all():
        return "kept"
    return "both" if is_kept.any() else "flushed"


def environment(variables: Dict[str, str]) -> Dict[str, str]:
    """Return the environment variables that may change a step, such as ``MKL_CBWR``."""
    return {
        name: variables[name]
        for name in sorted(variables)
        if name.startswith(PREFIXES) and name not in SET_BY_CAPTURE
    }


def allocator(files: Optional[List[str]]) -> Optional[str]:
    """Return the name of the malloc in use, from the mapped files."""
    if files is None:
        return None
    bases = [os.path.basename(path) for path in files]
    for part, name in ALLOCATORS:
        if any(part in base for base in bases):
            return name
    return "musl" if any("ld-musl" in base for base in bases) else "glibc"


def chosen(text: Optional[str]) -> Optional[str]:
    """Return the word in brackets: ``always [madvise] never`` -> ``madvise``."""
    word = re.search(r"\[(\w+)\]", text or "")
    return word.group(1) if word else None


def cpu_quota(root: str, groups: str) -> Optional[float]:
    """Return the number of CPUs that the process's cgroups allow."""
    limits: List[float] = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for place in _upwards(root if not controllers else _cpu_controller(root), path):
            limits += _limit(place)
    return min(limits, default=None)


def _cpu_controller(root: str) -> str:
    return next(iter(glob.glob(os.path.join(root, "cpu"))), os.path.join(root, "cpu,cpuacct"))


def _upwards(root: str, path: str) -> List[str]:
    """Return a folder and its parents up to the root: ``["/r/a/b", "/r/a", "/r"]``."""
    parts = [part for part in path.split("/") if part]
    return [os.path.join(root, *parts[:count]) for count in range(len(parts), -1, -1)]


def _limit(place: str) -> List[float]:
    """Return how many CPUs a cgroup allows: ``[1.5]``, or ``[]`` if unlimited."""
    # read the cgroup's limit; sources: cgroup-v2.rst, sched-bwc.rst of Linux
    words = (host.text_of(os.path.join(place, "cpu.max")) or "").split()
    if not words:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [(host.text_of(os.path.join(place, name)) or "").strip() for name in names]
    numbers = [int(word) for word in words if re.match(r"\d+\Z", word)]
    return [numbers[0] / numbers[1]] if len(numbers) == 2 and all(numbers) else []
