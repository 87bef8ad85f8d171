"""Record steps with torch's profiler, and read torch's settings and device.

torch.profiler exists since PyTorch 1.8.1. Older versions have torch.autograd.profiler, which
returns a list of events. ``formats.kineto.autograd`` reads this list.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from lstmprof.capture.worker import shapes
from lstmprof.capture.worker.machine.settings import denormal_numbers, denormals
from lstmprof.capture.worker.profilers import Profiler, calibration
from lstmprof.capture.worker.profiling import Ranges, both, no_ranges

#: Whether this torch has ``torch.profiler``, which uses the library Kineto.
HAS_KINETO = hasattr(getattr(torch, "profiler", None), "profile")
#: Environment variable with Kineto's log level, and the level that hides all messages. Kineto reads
#: the variable at its first recording.
_LOG_LEVEL, _SILENT = "KINETO_LOG_LEVEL", "6"
#: Names of the two ops that ``Tensor.item`` records, the second inside the first.
NESTED = ("aten::item", "aten::_local_scalar_dense")


class TorchProfiler(Profiler):
    """torch.profiler, or torch.autograd.profiler before PyTorch 1.8.1."""

    can_record_shapes = HAS_KINETO
    profiler = "torch.profiler" if HAS_KINETO else "torch.autograd.profiler"
    device = torch.device("cpu")

    @property
    def starts_late(self) -> bool:
        # a session on a GPU can lose its first kernels (torch 2.11, pytorch#192021)
        return bool(self.device.type == "cuda")

    def find_device(self) -> None:
        """Choose the current GPU if this process uses one, else the CPU."""
        on_gpu = torch.cuda.is_initialized()
        number = torch.cuda.current_device() if on_gpu else 0
        self.device = torch.device("cuda", number) if on_gpu else torch.device("cpu")

    def wait(self, outcome: Any = None) -> None:
        """Wait for all GPUs of this process; operators on a CPU run synchronously."""
        if torch.cuda.is_initialized():
            for number in _gpus_in_use():
                torch.cuda.synchronize(number)

    @contextlib.contextmanager
    def recording(self, folder: str) -> Iterator[Any]:
        """Record the CPU, and the GPU if the steps use a GPU."""
        if not HAS_KINETO:
            with torch.autograd.profiler.profile(use_cuda=self.device.type == "cuda") as session:
                yield session
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
            if _graphs_are_alive():
                keep_profiler_attached()
        session = torch.profiler.profile(activities=activities, record_shapes=self.with_shapes)
        with _quiet(session):
            yield session

    @contextlib.contextmanager
    def recording_shapes(self, folder: str) -> Iterator[List[shapes.OpInputs]]:
        """Yield a list, and fill the list with ops' input shapes after the block."""
        inputs: List[shapes.OpInputs] = []
        if not HAS_KINETO:
            yield inputs
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        session = torch.profiler.profile(activities=activities, record_shapes=True)
        with _quiet(session):
            yield inputs
        raw = os.path.join(folder, "shapes.trace.json")
        session.export_chrome_trace(raw)
        inputs += shapes.inputs_in_trace(raw)
        os.remove(raw)

    def trivial(self) -> Optional[Tuple[Callable[[], Any], int]]:
        """Return ``Tensor.item``; each call records the two ops ``NESTED``."""
        if not HAS_KINETO:
            return None
        return torch.ones((), dtype=torch.int64, device="cpu").item, 2

    def cost_parts(self, call: Callable[[], Any]) -> Optional[calibration.EventParts]:
        ranges = both(no_ranges, self.annotated(0))
        with self.recording("") as session:
            for _ in range(calibration.CALLS):
                call()
                with ranges(calibration.RANGE):
                    pass
        return cost_parts_of(session.events())

    def annotated(self, number: int) -> Ranges:
        if not HAS_KINETO:
            # ``record_function`` was named ``range`` in PyTorch 1.0
            legacy = torch.autograd.profiler
            older: Ranges = getattr(legacy, "record_function", None) or legacy.range
            return older
        ranges: Ranges = torch.profiler.record_function
        return ranges

    def written(self, session: Any, folder: str) -> Tuple[str, str]:
        raw = os.path.join(folder, "trace.json")
        session.export_chrome_trace(raw)
        kind = "pt" if HAS_KINETO else "autograd"
        return raw, "{}.{}.trace.json".format(self.title, kind)

    def settings(self) -> Dict[str, Any]:
        return settings(self.device.type)

    def facts(self) -> Dict[str, Any]:
        cuda = self.device.type == "cuda"
        return {
            "device": str(self.device),
            "device_name": torch.cuda.get_device_name(self.device) if cuda else None,
            "device_memory_bytes": (
                torch.cuda.get_device_properties(self.device).total_memory if cuda else None
            ),
            "threads": torch.get_num_threads(),
            "versions": {
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version() if cuda else None,
            },
        }


@contextlib.contextmanager
def _quiet(session: Any) -> Iterator[None]:
    """Run a profiler session, and hide PyTorch's messages about the session."""
    kinds = (getattr(torch, name, None) for name in ("cuda", "xpu"))
    # hide messages like ``USDT:… profiler_start`` (PyTorch 2.13) only without a GPU, because the
    # same level would also hide CUPTI's errors
    with_gpu = any(kind is not None and kind.is_available() for kind in kinds)
    level_is_ours = _LOG_LEVEL not in os.environ and not with_gpu
    if level_is_ours:
        os.environ[_LOG_LEVEL] = _SILENT
    try:
        with contextlib.ExitStack() as stack:
            with warnings.catch_warnings():
                # hide the warning (PyTorch 2.9 to 2.12) that a second cycle would clear the events
                warnings.filterwarnings("ignore", "Warning: Profiler clears events")
                stack.enter_context(session)
            yield
    finally:
        if level_is_ours:
            os.environ.pop(_LOG_LEVEL, None)


def _gpus_in_use() -> List[int]:
    # omit unused GPUs, because waiting for an unused GPU would create a CUDA context
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return [torch.cuda.current_device()]
    return [number for number in range(torch.cuda.device_count()) if has_context(number)]


def _graphs_are_alive() -> bool:
    """Return whether a CUDA graph exists that a step may replay."""
    graph = getattr(torch.cuda, "CUDAGraph", None)  # since PyTorch 1.10
    return graph is not None and any(issubclass(type(made), graph) for made in gc.get_objects())


def keep_profiler_attached() -> None:
    """Keep CUPTI loaded: with CUDA graphs, a second session would crash."""
    # set the two variables that torch/profiler/profiler.py sets for CUDA graphs
    os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
    os.environ.setdefault("TEARDOWN_CUPTI", "0")


def cost_parts_of(events: Sequence[Any]) -> Optional[calibration.EventParts]:
    """Return the median duration of each part of ``NESTED`` ops; None if times are whole µs."""
    named: Dict[str, List[Tuple[float, float]]] = {}
    for event in events:
        span = event.time_range
        named.setdefault(event.name, []).append((span.start * 1e3, span.end * 1e3))
    outer, inner = (sorted(named.get(name, ())) for name in NESTED)
    spans = [end - start for start, end in named.get(calibration.RANGE, ())]
    pairs = list(zip(outer, inner))
    is_fine = any(end % 1e3 for _, end in outer)  # else times are whole µs
    if not pairs or not spans or len(outer) != len(inner) or not is_fine:
        return None
    return calibration.EventParts(
        before_ns=statistics.median(within[0] - around[0] for around, within in pairs),
        inside_ns=statistics.median(end - start for start, end in inner),
        after_ns=statistics.median(around[1] - within[1] for around, within in pairs),
        range_ns=statistics.median(spans),
    )


#: ``fp32_precision`` of matmuls -> value that ``get_float32_matmul_precision`` would return.
MATMUL_PRECISIONS = {"none": "highest", "ieee": "highest", "tf32": "high", "bf16": "medium"}


def fp32_precision(*place: str) -> Optional[str]:
    """Return a setting like ``torch.backends.cuda.matmul.fp32_precision``."""
    if not hasattr(torch._C, "_get_fp32_precision_getter"):  # before PyTorch 2.9
        return None
    part: Any = torch.backends
    for name in place:
        part = getattr(part, name, None)
    precision: Optional[str] = getattr(part, "fp32_precision", None)
    return precision


def settings(device_type: str) -> Dict[str, Any]:
    mkldnn = getattr(torch.backends, "mkldnn", None)  # since PyTorch 1.1
    onednn = getattr(mkldnn, "enabled", None)  # since PyTorch 1.11
    available = mkldnn is None or mkldnn.is_available()
    facts = {
        "anomaly_mode": _call("is_anomaly_enabled"),
        "deterministic": _call("are_deterministic_algorithms_enabled"),  # since PyTorch 1.8
        "onednn": available and onednn if isinstance(onednn, bool) or not available else None,
        "matmul_precision": _matmul_precision(device_type),
        "intra_op_threads": torch.get_num_threads(),
        "inter_op_threads": _call("get_num_interop_threads"),
    }
    if device_type == "cpu":
        doubled = torch.from_numpy(denormal_numbers()) * 2
        return dict(facts, framework_denormals=denormals(doubled.numpy()))
    return dict(
        facts,
        cudnn_deterministic=torch.backends.cudnn.deterministic,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        **_tf32(),
    )


def _matmul_precision(device_type: str) -> Optional[str]:
    """Return the matmul precision: ``highest``, ``high`` or ``medium``."""
    # read the new setting first: the old function fails if a script has set the new setting
    precision = fp32_precision("mkldnn" if device_type == "cpu" else "cuda", "matmul")
    if precision is not None:
        return MATMUL_PRECISIONS.get(precision)
    older: Optional[str] = _call("get_float32_matmul_precision")
    return older


def _tf32() -> Dict[str, Optional[bool]]:
    """Return whether matmuls and cuDNN's recurrent layers may use TF32."""
    matmul, cudnn = fp32_precision("cuda", "matmul"), fp32_precision("cudnn", "rnn")
    if matmul is not None and cudnn is not None:
        return {"matmul_tf32": matmul == "tf32", "cudnn_tf32": cudnn == "tf32"}
    products = getattr(torch.backends.cuda, "matmul", None)
    return {
        "matmul_tf32": getattr(products, "allow_tf32", None),
        "cudnn_tf32": getattr(torch.backends.cudnn, "allow_tf32", None),
    }


def _call(name: str) -> Any:
    question = getattr(torch, name, None)
    return None if question is None else question()
