"""How to record, with each profiler, what a profile of it lacks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """How to record with the profiler of one format what a profile of it lacks."""

    gpu: str
    host: str
    ops: str
    links: str = "export the profile without trimming it"


_OF_FORMAT = {
    "kineto": Advice(
        "record with ProfilerActivity.CUDA (XPU or MTIA on those devices), while no other profiler "
        "(nsys, DCGM) runs, and synchronise before the profiler stops",
        "also record with ProfilerActivity.CPU",
        "also record with ProfilerActivity.CPU",
    ),
    "nsys": Advice(
        "profile with nsys profile --trace=cuda,nvtx",
        "profile with nsys profile --trace=cuda,nvtx",
        "run under torch.autograd.profiler.emit_nvtx and profile with nsys profile "
        "--trace=cuda,nvtx",
    ),
    "nvprof": Advice(
        "profile with nvprof -o FILE python …, or with nsys profile --trace=cuda,nvtx",
        "profile with nvprof -o FILE python …, or with nsys profile --trace=cuda,nvtx",
        "run under torch.autograd.profiler.emit_nvtx",
    ),
    "rocprofv3": Advice(
        "record with rocprofv3 --runtime-trace (before ROCm 7, add --output-format json)",
        "record with rocprofv3 --runtime-trace (before ROCm 7, add --output-format json)",
        "run under torch.autograd.profiler.emit_nvtx and record with rocprofv3 --runtime-trace "
        "(before ROCm 7, add --output-format json)",
    ),
    "xplane": Advice(
        "add libcupti to LD_LIBRARY_PATH, allow profiling for all users "
        "(NVreg_RestrictProfilingToAdminUsers=0), and record again",
        "record with a host tracer level of 1 or more",
        "record with a host tracer level of 2 or more",
    ),
    "trace_viewer": Advice(
        "search the program's log for libcupti, allow profiling for all users "
        "(NVreg_RestrictProfilingToAdminUsers=0), and record again",
        "give the .xplane.pb of the same run",
        "give the .xplane.pb of the same run",
        "give the .xplane.pb of the same run",
    ),
    "onnxruntime": Advice(
        "record with nsys profile --trace=cuda,nvtx, as ONNX Runtime's profiler records only the "
        "host",
        "record with SessionOptions.enable_profiling = True",
        "record with SessionOptions.enable_profiling = True",
    ),
    "autograd": Advice(
        "record with torch.autograd.profiler.profile(use_cuda=True), or under emit_nvtx with nsys",
        "record with torch.autograd.profiler.profile()",
        "record with torch.autograd.profiler.profile()",
        "record with nsys profile, as this profiler does not record launches",
    ),
    "tf1_timeline": Advice(
        "add libcupti to LD_LIBRARY_PATH, and record with RunOptions(trace_level=FULL_TRACE)",
        "record with RunOptions(trace_level=FULL_TRACE)",
        "record with RunOptions(trace_level=FULL_TRACE)",
        "record with nsys profile, as a TensorFlow 1 timeline has no launches",
    ),
}
_ANY = Advice(
    "also record the GPU's activities", "also record the host", "also record the framework's ops"
)


def advice_for(profile_format: str | None) -> Advice:
    """How to record with the profiler that writes profiles of this format."""
    return _OF_FORMAT.get(profile_format or "", _ANY)
