"""The worker process: ``python -m lstmprof.capture.worker request.json``.

Its original stdout is a pipe for progress lines. Whatever frameworks print goes to stderr, which is
the log.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from lstmprof import implementations
from lstmprof.base.errors import CaptureError, LstmprofError, one_line
from lstmprof.base.package import version_numbers
from lstmprof.capture.request import MARK, NSYS, RESULT, CaptureRequest, refusal
from lstmprof.capture.worker import loops, profiling, sampling, timing, users_file
from lstmprof.capture.worker.lines import MOST_NS, MOST_STEPS, LineSampler
from lstmprof.capture.worker.machine import host, meters, peaks, settings
from lstmprof.capture.worker.machine.counters import CpuCounters
from lstmprof.capture.worker.metadata import TwoPasses, now, pass_facts, request_facts, worker_facts
from lstmprof.implementations import Implementation

Report = Callable[[str], None]
Cpus = Optional[List[int]]
DeviceFolder = Tuple[str, str]  # device, folder

LOOPS = "lstmprof.capture.worker.loops."
#: Import name -> how to install the package, for packages that lstmprof does not install.
PROVIDED_BY = {
    "numpy": "numpy",
    "torch": "lstmprof[torch]",
    "tensorflow": "lstmprof[tensorflow]",
    "keras": "lstmprof[tensorflow]",
    "jax": "lstmprof[jax]",
    "flax": "lstmprof[jax]",
    "equinox": "lstmprof[jax]",
    "haiku": "lstmprof[jax]",
    "pytensor": "lstmprof[pytensor]",
    "theano": "Theano==1.0.5",
    "lasagne": "Lasagne==0.1",
    "mxnet": "mxnet==1.9.1 numpy==1.21.6",
    "chainer": "chainer==7.8.1 numpy==1.21.6",
    "caffe2": "torch==1.8.1 future six protobuf==3.20.3",
    "google": "protobuf==3.20.3",
    "future": "future",
    "onnx": "lstmprof[onnxruntime]",
    "onnxruntime": "lstmprof[onnxruntime]",
    "openvino": "lstmprof[openvino]",
}


#: Package -> optional imports to block, which take a fifth of TensorFlow's import time.
NOT_NEEDED = {"tensorflow": ("pandas", "jax"), "keras": ("pandas",)}


#: XLA's flag whose empty value turns CUDA graphs off.
COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer="
#: Framework -> package with XLA, first version that knows the flag (older versions abort).
XLA_PACKAGES = {"jax": ("jaxlib", (0, 4, 24)), "tensorflow": ("tensorflow", (2, 16))}


def main(arguments: List[str]) -> int:
    """Run the request in the file ``arguments[0]``; end if the parent process ends."""
    # if nsys is the parent, end when lstmprof closes the FIFO in ``arguments[2]``
    if len(arguments) > 2:
        host.end_with(arguments[2])
    else:
        host.die_with(int(arguments[1]))
    folder = os.path.dirname(os.path.abspath(arguments[0]))
    with open(arguments[0], encoding="utf-8") as file:
        request = CaptureRequest.from_json(file.read())
    report = _report_to_stdout(MARK if request.profiler == NSYS else "")
    result, path = outcome(request, folder, report), os.path.join(folder, RESULT)
    with open(path + ".partial", "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(path + ".partial", path)
    return 1 if "failure" in result else 0


def _report_to_stdout(mark: str) -> Report:
    """Return a function that prints progress; send all other output to the log."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def report(line: str) -> None:
        lines.write(mark + one_line(line) + "\n")
        lines.flush()

    return report


def outcome(request: CaptureRequest, folder: str, report: Report) -> Dict[str, Any]:
    """Run the request; return the results, or the failure with its next step."""
    try:
        return captured(request, folder, report)
    except LstmprofError as error:
        return {"failure": [error.fault, error.next_step]}
    except Exception as error:
        import traceback

        traceback.print_exc()
        missing = isinstance(error, ModuleNotFoundError) and error.name in PROVIDED_BY
        if request.file is not None and not missing and not _out_of_memory(error):
            return {"failure": users_file.explained(error, request.file)}
        return {"failure": explained(error, request.row.era)}


def captured(request: CaptureRequest, folder: str, report: Report) -> Dict[str, Any]:
    """Time and profile the implementation; return the content of result.json."""
    turn = timing.turn_of(request, report)
    if turn is not None:
        turn()
    conditions = {"load_average_before": host.load_average(), "started_at": now()}
    framework = request.row.framework
    cpus = _take_cpus(request)
    counters = CpuCounters()
    os.environ.update(sampling.NAME_GENERATED_CODE if request.sampler else {})
    report("importing {} in process {}".format(framework, os.getpid()))
    if request.file is None:
        _leave_out(request.row)
    loop = loops.loop_of(request.row)
    gc.freeze()  # imported objects are permanent, so garbage collection need not scan them
    lacks = request.row.lacks(getattr(sys.modules.get(framework), "__version__", None))
    if lacks:
        raise CaptureError(lacks, "choose another version with --with or --versions")
    device = loop.device_of(request.device)
    refused = refusal(dataclasses.replace(request, device=device))
    if refused:
        raise CaptureError(
            refused, "choose another --device; 'lstmprof list' shows what each supports"
        )
    if device == "cpu" and request.threads is None:  # the device ``auto`` is the CPU
        cpus = host.take_cpus(1, request.cpus)
    loop.set_threads(host.thread_count())
    agrees = _computes_workload(request, device, report)
    trainer = loop.Trainer(request, device)
    place = device, os.path.join(folder, profiling.PROFILE)
    passes = run_passes(trainer, request, place, report, counters, turn)
    witness = _sampled(trainer, request, place[1], report)
    request_info, ran_on = request_facts(request), worker_facts(trainer.recorder, cpus)
    pass_columns = pass_facts(passes, request)
    pass_columns["sampling"] = witness and witness.facts(request)
    pass_columns.update(_script_facts(trainer, request))
    pass_columns["agrees_with_reference"] = agrees
    pass_columns["peaks"] = peaks.facts(request, loop, device, report)
    return {
        "metadata": dict(request_info, **conditions, **ran_on, **pass_columns, ended_at=now()),
        "timings": timing.columns(passes.rows),
        "pid": os.getpid(),
        "profiles": [os.path.relpath(path, folder) for path in passes.profiled.files],
        "shapes": passes.profiled.shapes and os.path.relpath(passes.profiled.shapes, folder),
        "samples": witness and witness.file and os.path.relpath(witness.file, folder),
    }


def _leave_out(row: Implementation) -> None:
    """Block the framework's optional imports, which take time."""
    # map the modules to None in ``sys.modules``, so that their import fails at once
    for name in (row.framework, row.library):
        sys.modules.update(dict.fromkeys(NOT_NEEDED.get(name or "", ())))  # type: ignore[arg-type]


def _computes_workload(request: CaptureRequest, device: str, report: Report) -> Optional[bool]:
    if request.file is None:
        return None
    from lstmprof.capture.worker.checked_file import computes_workload

    return computes_workload(
        users_file.implementation_of(request), request.workload, device, report
    )


def run_passes(
    trainer: Any,
    request: CaptureRequest,
    place: DeviceFolder,
    report: Report,
    counters: CpuCounters,
    turn: Optional[timing.Turn] = None,
) -> TwoPasses:
    """Time half of the iterations, profile some steps, and time the other half."""
    device, folder = place
    os.makedirs(folder)
    ranges = profiling.nvtx_ranges() or profiling.no_ranges
    step, users = functools.partial(trainer.step, ranges), request.file is not None
    loop = timing.Loop(step, trainer.loss, trainer.device_ns, users=users)
    # skip the CPUs' energy if workers take turns, because a reading would include all workers
    energy = meters.Meters(device) if turn is None else meters.Meters(device, powercap="")
    counts = meters.StepCounts(ranges)
    most_ns = None if request.timing_s is None else round(request.timing_s * 1e9)
    whole = timing.Quota(request.iterations, most_ns)
    first, rest = whole.halves() if request.steps_to_profile else (whole, timing.Quota(0))
    profiled = profiling.Profiled([], [], [], None)

    # extend the usual warm-up, which may be too short to raise a GPU's clocks
    is_short = request.warmup is None and device != "cpu"
    warm_up_ns = timing.GPU_WARM_UP_NS if is_short else 0

    def timed(warmup: int, share: timing.Quota, place: int) -> List[timing.Iteration]:
        least_ns = 0 if place else warm_up_ns
        rows = timing.warmed(loop, warmup, least_ns, report, time.perf_counter_ns)
        with energy.reading(), counters.reading():
            counted = timing.shared(loop, share, turn, report, time.perf_counter_ns, place)
        return timing.joined(rows, counted)

    with timing.collector_frozen():
        report("timing")
        rows = timed(request.warmup_iterations, first, 0)
        if request.steps_to_profile:
            report("profiling")
            if turn is not None:
                turn()
            profiled = trainer.profile(counts, request.steps_to_profile, folder)
        for number, loss in enumerate(profiled.losses, len(rows)):
            timing.refuse_unless_finite(loss, number)
        if rest.iterations:
            report("timing again")
            again = timed(1, rest, first.iterations)
            rows = timing.joined(rows, timing.after_profile(again))
        settings_found = settings.recorded(trainer.settings())
    cost = {
        **energy.facts(),
        **counts.facts(),
        "counters": counters.facts(),
        "settings": settings_found,
    }
    return TwoPasses(rows, cost, profiled)


def _sampled(
    trainer: Any, request: CaptureRequest, folder: str, report: Report
) -> Optional[sampling.Sampled]:
    """Run more steps while a sampler reads their call stacks."""
    if request.sampler is None:
        return None
    report("sampling with " + request.sampler)
    ranges = profiling.nvtx_ranges() or profiling.no_ranges
    with timing.collector_frozen():
        witness = sampling.sampled(functools.partial(trainer.step, ranges), request, folder)
    if witness.reason:
        report("no samples: " + witness.reason)
    return witness


def _script_facts(trainer: Any, request: CaptureRequest) -> Dict[str, Any]:
    """Return where in the user's file the steps spend time."""
    if request.file is None:
        return {}
    sampler, began_ns = LineSampler(), time.perf_counter_ns()
    with sampler.sampling_stacks():
        while sampler.steps < MOST_STEPS and time.perf_counter_ns() - began_ns < MOST_NS:
            with sampler.in_step():
                trainer.step(profiling.no_ranges)
    return sampler.facts()


def _take_cpus(request: CaptureRequest) -> Cpus:
    gpu = request.device != "cpu" and host.cuda_devices() > 0
    framework = request.row.framework
    os.environ.update(_variables(request, framework))
    if request.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # otherwise, TensorFlow takes the GPU's memory
    cpus = host.take_cpus(request.threads or (None if gpu else 1), request.cpus)
    if not request.keep_denormals:
        host.flush_denormals()
    return cpus


def _variables(request: CaptureRequest, framework: str) -> Dict[str, str]:
    """Return the environment variables to set before the framework's import."""
    variables = {}
    if framework == "tensorflow" and not request.onednn:
        variables["TF_ENABLE_ONEDNN_OPTS"] = "0"
    on_gpu = request.device != "cpu"
    # set cuBLAS's workspace size, which PyTorch requires for deterministic matmuls
    if framework == "torch" and request.deterministic and on_gpu:
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    # turn CUDA graphs off, because XLA does not replay CUDA graphs under a profiler
    if on_gpu and not request.cuda_graph and _makes_command_buffers(request, framework):
        given = os.environ.get("XLA_FLAGS", "")
        variables["XLA_FLAGS"] = (
            given if COMMAND_BUFFERS in given else given + " " + COMMAND_BUFFERS
        )
    return variables


def _makes_command_buffers(request: CaptureRequest, framework: str) -> bool:
    """Return whether XLA would replay parts of the step as CUDA graphs."""
    package, since = XLA_PACKAGES.get(framework, ("", ()))
    if not package or (framework == "tensorflow" and not request.xla) or not host.cuda_devices():
        return False
    try:
        from importlib import metadata  # since Python 3.8

        return version_numbers(metadata.version(package)) >= since
    except ImportError:  # the package is not installed either
        return False


def explained(error: Exception, era: str = "") -> List[str]:
    """Explain an error as [fault, next step], one line each."""
    if isinstance(error, ModuleNotFoundError) and error.name in PROVIDED_BY:
        remedy = "install {} in that environment".format(PROVIDED_BY[error.name])
        if era:
            remedy = "use --era {} instead of that Python".format(era)
        return ["{} is not installed in {}".format(error.name, sys.executable), remedy]
    # recognise Inductor's InvalidCxxCompiler, which may be inside another error
    if "No working C++ compiler" in str(error):
        return [
            "torch.compile found no C++ compiler",
            "install g++, or set CXX to another compiler",
        ]
    if "Failed to find C compiler" in str(error):  # triton/runtime/build.py
        return ["Triton, which torch.compile uses on a GPU, found no C compiler", "install gcc"]
    # recognise oneDNN's error for a bfloat16 LSTM on a CPU without AVX-512
    if "could not create a primitive" in str(error):
        fault = "oneDNN cannot compute in this precision on this CPU: " + _first_line(error)
        return [fault, "use --no-onednn, or another --precision"]
    if _out_of_memory(error):
        return ["out of memory: " + _first_line(error), "try a smaller --batch"]
    words = _first_line(error)
    if _is_import_error(error):  # the last lines often say what to do
        words = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return ["{}: {}".format(type(error).__name__, words), ""]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _is_import_error(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "<module>":
            return True
        trace = trace.tb_next
    return False


def _out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError):  # NumPy raises it
        return True
    loaded = [sys.modules.get(LOOPS + framework) for framework in implementations.FRAMEWORKS]
    tests = [getattr(loop, "out_of_memory", None) for loop in loaded]
    return any(says_so(error) for says_so in tests if says_so is not None)


def process(arguments: List[str]) -> int:
    gc.disable()
    code = main(arguments)
    gc.freeze()
    return code


if __name__ == "__main__":
    sys.exit(process(sys.argv[1:]))
