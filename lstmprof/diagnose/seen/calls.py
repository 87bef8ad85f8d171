"""Calls of programs and ops from Python, compilations, and calls that load code or start a GPU.

Examples of names: ``PjitFunction(name)`` for a program of JAX (jaxlib's pjit.cc), and
``EagerLocalExecute: Type`` for an op or function that TensorFlow runs eagerly
(tensorflow/core/common_runtime/eager/execute.cc).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from lstmprof.breakdown.attribution import LATENCY
from lstmprof.diagnose.seen.contexts import compiles
from lstmprof.diagnose.seen.lane import Fact, Lane, median, upper_median
from lstmprof.diagnose.seen.waits import UNUSUAL
from lstmprof.events.annotate.calls import is_kernel_launch, is_launch
from lstmprof.events.groups import Groups, inherited, own_time
from lstmprof.events.intervals import Covered, Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import VALUE_READS, runtime_state, thread_ids

#: Pattern of a call of a JAX program. JAX's own operators (``add``, ``scan``) are programs, too.
PROGRAM = re.compile(r"PjitFunction\((?P<name>.+)\)")
EAGER = re.compile(r"EagerLocalExecute: (?P<name>\w\S*)")
FUNCTION = re.compile(r"EagerLocalExecute: __")
#: Pattern of the column ``op_name`` in the call that traces a tf.function for the first time.
_FIRST_TRACE = re.compile(r"traced-\w+ #1")
#: Smallest number of first traces of one name in one step at which lstmprof assumes that the step
#: creates the function again and again. Two functions may just share a name.
_NEW = 3
#: Pattern of operators that fetch the input, which a tf.function cannot contain.
_FEEDS = re.compile(r"EagerLocalExecute: (?:\w*Dataset\w*|\w*Iterator\w*|_EagerConst)")


def compiled(lane: Lane) -> tuple[Fact, ...]:
    """Return the events that trace or compile, with the op or program that is compiled."""
    rows = _compilations(lane)
    return lane.by_name(rows, lane.events.dur_ns, lane.around(rows))


def compiled_steps(lane: Lane) -> int:
    """Return the number of steps in which something compiles."""
    rows = _compilations(lane)
    return len(np.unique(lane.step[rows])) if lane.marked else min(len(rows), 1)


def _compilations(lane: Lane) -> Ints:
    marks = _compiling(lane)
    return _outermost(lane, marks, marks)


def programs(lane: Lane) -> tuple[Fact, ...]:
    """Return the JAX programs that Python calls."""
    calls = lane.events_named(PROGRAM.fullmatch)
    rows = _outermost(lane, calls, calls | _compiling(lane))
    return lane.by_name(rows, lane.events.dur_ns)


def eager(lane: Lane) -> tuple[Fact, ...]:
    """Return TensorFlow's operators and functions that Python calls."""
    calls = lane.events_named(EAGER.fullmatch)
    rows = np.flatnonzero(calls & ~lane.events.where_name(_FEEDS.fullmatch))
    return lane.by_name(rows, lane.events.dur_ns)


def called(lane: Lane) -> tuple[Fact, ...]:
    """Return how long the host takes to call JAX programs and eager TensorFlow."""
    events = lane.events
    calls = lane.events_named(PROGRAM.fullmatch) | lane.events_named(EAGER.fullmatch)
    calls &= ~events.where_name(_FEEDS.fullmatch)
    rows = _outermost(lane, calls, calls | _compiling(lane))
    if not len(rows):
        return ()
    thread = thread_ids(events)
    rows = rows[np.lexsort((events.start_ns[rows], thread[rows]))]
    start, end = events.start_ns[rows], events.end_ns[rows]
    # add the time since the previous call to a call, unless this time is unusually long
    between_ns = start[1:] - end[:-1]
    follows = (thread[rows[1:]] == thread[rows[:-1]]) & (
        lane.step[rows[1:]] == lane.step[rows[:-1]]
    )
    follows &= between_ns >= 0
    if follows.any():
        follows &= between_ns <= UNUSUAL * median(between_ns[follows])
    since = np.append(start[:1], np.where(follows, end[:-1], start[1:]))
    spent_ns = np.zeros(len(events), dtype=np.int64)
    spent_ns[rows] = lane.idle_within(("dispatch", "python"), since, end)
    return lane.by_name(rows, spent_ns)


def made_anew(lane: Lane) -> str | None:
    """Return the name of a tf.function that the program creates again and again."""
    calls = lane.here & lane.events.is_kind("op")
    rows = np.flatnonzero(calls & lane.events.where("op_name", _FIRST_TRACE.fullmatch))
    for members in Groups(lane.names[rows]).members():
        steps = len(np.unique(lane.step[rows[members]])) if lane.marked else 1
        if steps > 1 or len(members) >= _NEW:
            return lane.text(int(rows[members[0]]))
    return None


def _compiling(lane: Lane) -> Flags:
    named = lane.events_named(compiles, "op", "range", "python", "runtime")
    # ignore events that take no time in the clean step (without the time of profiling)
    return named & (lane.events.dur_ns > 0)


def _outermost(lane: Lane, chosen: Flags, around: Flags) -> Ints:
    """Return the ``chosen`` events that are not inside an event of ``around``."""
    numbers = np.where(around, np.arange(len(lane.events)), NONE)
    inside = inherited(lane.parent, numbers)
    above = np.where(lane.parent != NONE, inside[lane.parent], NONE)
    return np.flatnonzero(chosen & (above == NONE))


#: GPU runtime → pattern of how the names of its functions begin.
RUNTIMES = {"CUDA": re.compile(r"cuda[A-Z]|cu[A-Z]"), "HIP": re.compile(r"hip[A-Z]")}
#: Pattern of calls that always load code or initialise the runtime. The last two names are from
#: Nsight Systems.
_LOADS = re.compile(
    r"cuInit$|cuModuleLoad|cuLibraryLoad|hipModuleLoad|hipInit$|\w*CtxCreate|\w*PrimaryCtxRetain"
    r"|Runtime Triggered Module Loading|Lazy Function Loading"
)
#: Pattern of calls that never load code, but can take long: a prefetch of many pages.
_NO_LOAD = re.compile(r"Unload|Destroy|Finalize|Prefetch")
#: Pattern of calls that allocate memory. A large block takes long, also without loading code.
_ALLOCATES = re.compile(r"[Aa]lloc|MemCreate|MemMap")
#: Shortest first call in ns at which lstmprof assumes that the call loads code. A launch takes 4.8
#: to 6.6 µs (BERT, H100).
LONG_CALL_NS = 1_000_000
#: Smallest ratio of a first call's duration to the median duration of later calls at which lstmprof
#: assumes that the first call loads code.
LONGER = 10
#: Smallest ratio, like ``LONGER``, for ops on a CPU, whose time depends on the input, and for ops
#: that call other ops. Chosen by hand.
MUCH_LONGER = 100
#: Pattern of PyTorch's ops, other than ``VALUE_READS``, that may wait for the device or ranks.
_MAY_WAIT = re.compile(r"aten::nonzero$|c10d::|record_param_comms|.*(?:[Ww]ait|DataLoader|barrier)")


def loads(name: str) -> bool:
    """Return whether a runtime call of this name, such as cuModuleLoad, loads code."""
    return _LOADS.match(name) is not None


def steps_before(lane: Lane) -> int:
    """Return how many steps ran before the profile; 0 without step markers."""
    numbers = lane.step[lane.rank & (lane.step != NONE)]
    # subtract 1, because some frameworks number steps from 1
    return max(0, int(numbers.min()) - 1) if len(numbers) else 0


def loading(lane: Lane) -> tuple[Fact, ...]:
    """Return the calls that load code or initialise the runtime, the longest first."""
    spent_ns = lane.spent_ns - np.where(delays(lane), 0, lane.idle_ns(LATENCY))
    facts = []
    for rows, usual_ns in (*_loading_calls(lane), *_first_ops(lane)):
        ns, name = round(int(spent_ns[rows].sum()) / lane.steps), str(lane.text(int(rows[0])))
        facts.append(Fact(name, ns, len(rows) / lane.steps, None, usual_ns))
    return tuple(sorted((f for f in facts if f.ns), key=lambda f: (-f.ns, f.name)))


def starting(lane: Lane) -> Flags:
    """Mark calls that load code or initialise the runtime, and events inside calls."""
    calls, ops = (np.zeros(len(lane.events), dtype=np.bool_) for _ in range(2))
    for found, marks in ((_loading_calls(lane), calls), (_first_ops(lane), ops)):
        for rows, _ in found:
            marks[rows] = True
    if calls.any():
        # mark the events inside calls, but not inside ops: an op may contain other work
        calls = inherited(lane.parent, np.where(calls, np.arange(len(calls)), NONE)) != NONE
    return np.asarray(calls | ops, np.bool_)


def delays(lane: Lane) -> Flags:
    """Mark launches whose length causes the gap before the kernel."""
    events, late_ns = lane.events, lane.idle_ns(LATENCY)
    rows = np.flatnonzero(late_ns)
    work = Covered(events.start_ns[lane.activity], events.end_ns[lane.activity])
    # a short launch would hide the latency behind the work that the device did meanwhile
    hides = np.zeros(len(events), dtype=np.bool_)
    hides[rows] = work.within(events.start_ns[rows], events.end_ns[rows]) >= late_ns[rows]
    return hides


def _loading_calls(lane: Lane) -> Iterator[tuple[Ints, int | None]]:
    """Yield each name's calls that load code, and the usual time of a call in ns."""
    events = lane.events
    prepares = _before_first_launches(lane)
    works = lane.rank & events.is_kind("kernel")
    works = works if works.any() else lane.rank & events.is_kind(*ACTIVITY_KINDS)
    # calls before the first kernel may load code, also calls such as cudaFree
    begun = lane.least_of_each(events.start_ns, np.flatnonzero(works))
    rows = np.flatnonzero(lane.rank & events.is_kind("runtime"))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    for members in Groups(lane.names[rows]).members() if len(rows) else ():
        chosen, usual_ns = _first_long(lane, rows[members], begun, prepares)
        if len(chosen):
            yield chosen, usual_ns


def _first_ops(lane: Lane) -> Iterator[tuple[Ints, int | None]]:
    """Yield each op's unusually long first calls (one per process), and the usual ns."""
    events = lane.events
    computes = events.column("category").is_valid().to_numpy()
    computes &= ~events.is_one_of("category", "other", "collective")
    counts = computes
    if framework(events) == "torch":
        waits = events.where_name(lambda name: name in VALUE_READS or _MAY_WAIT.match(name))
        counts = ~waits & ~events.is_one_of("category", "collective")
    rows = np.flatnonzero(lane.rank & events.is_kind("op") & counts)
    # skip profiles with step markers, because their steps ran after a warm-up
    if lane.marked or not len(rows):
        return
    rows, own_ns = rows[np.argsort(events.start_ns[rows], kind="stable")], own_time(events)
    for members in Groups(lane.names[rows]).members():
        first = rows[members][Groups(lane.turn[rows[members]]).first]
        others = np.setdiff1d(rows[members], first)
        if len(others) > len(first):
            usual_ns = upper_median(own_ns[others])
            # a first call that loads code takes much longer than later calls (RTX 3090,
            # aten::cudnn_convolution: 74 ms, later 3.3 ms)
            longer = LONGER if lane.device is not None and computes[first[0]] else MUCH_LONGER
            first = first[own_ns[first] >= max(LONG_CALL_NS, longer * usual_ns)]
            if len(first):
                yield first, usual_ns


def _first_long(lane: Lane, rows: Ints, begun_ns: Ints, prepares: Flags) -> tuple[Ints, int | None]:
    name, dur = str(lane.text(int(rows[0]))), lane.events.dur_ns
    is_gpu_call = any(pattern.match(name) for pattern in RUNTIMES.values())
    if _NO_LOAD.search(name) or not (loads(name) or is_gpu_call) or runtime_state(name) == "sync":
        return rows[:0], None
    early = lane.events.start_ns[rows] < begun_ns[lane.turn[rows]]
    if not _ALLOCATES.search(name):
        early |= prepares[rows]
    if loads(name):
        first = rows
    else:
        first = rows[Groups(lane.turn[rows]).first]
        if is_kernel_launch(name):
            first = np.union1d(first, _first_of_kernels(lane, rows, _kernel_of(lane)))
    if not is_launch(name) and not steps_before(lane):
        first = np.union1d(first, rows[early])
    others = np.setdiff1d(rows, first)
    if not len(others) and _ALLOCATES.search(name):
        others = first[1:]  # other allocations before the first kernel show the usual time
    middle = upper_median(dur[others]) if len(others) else None
    if loads(name):
        long = np.ones(len(first), dtype=np.bool_)
    elif middle is not None:
        long = dur[first] >= max(LONG_CALL_NS, LONGER * middle)
    else:
        long = (dur[first] >= LONG_CALL_NS) & np.isin(first, rows[early])
    return first[long & lane.here[first]], middle


def _kernel_of(lane: Lane) -> Ints:
    """Return the code of the launched kernel's name for each event, or NONE."""
    work = np.flatnonzero(lane.rank & lane.events.is_kind("kernel"))
    launch = lane.events.rows_named("launch_id")[work]
    kernel = np.full(len(lane.events), NONE, dtype=np.int64)
    kernel[launch[launch != NONE]] = lane.names[work][launch != NONE]
    return kernel


def _first_of_kernels(lane: Lane, rows: Ints, kernel: Ints) -> Ints:
    """Return the first launch of each kernel."""
    linked: Ints = rows[kernel[rows] != NONE]
    if len(linked):
        linked = linked[Groups(lane.turn[linked], kernel[linked]).first]
    return linked


def _before_first_launches(lane: Lane) -> Flags:
    """Mark calls that prepare the first launch of a kernel."""
    events, thread, kernel = lane.events, thread_ids(lane.events), _kernel_of(lane)
    rows = np.flatnonzero(lane.rank & events.is_kind("runtime"))
    first = np.zeros(len(events), dtype=np.bool_)
    in_order = rows[np.argsort(events.start_ns[rows], kind="stable")]
    first[_first_of_kernels(lane, in_order, kernel)] = True
    rows = rows[np.lexsort((events.start_ns[rows], thread[rows]))]
    launches = np.flatnonzero(kernel[rows] != NONE)
    prepares = np.zeros(len(events), dtype=np.bool_)
    if len(launches):
        # mark the calls on the thread between the previous launch and the first launch
        place = np.searchsorted(launches, np.arange(len(rows)))
        after = rows[launches[np.minimum(place, len(launches) - 1)]]
        same = (place < len(launches)) & (thread[after] == thread[rows]) & (kernel[rows] == NONE)
        prepares[rows] = same & first[after]
    return prepares


#: Framework → pattern of names of ops, ranges or Python functions that only this framework uses.
_OPS = {
    "torch": re.compile(r"^(?:aten|c10d|autograd|torch)::|^Torch-Compiled|^ProfilerStep|^torch/"),
    "jax": re.compile(r"^PjitFunction|^jit_\w+[:(]|^trace_to_jaxpr|^jit\("),
    "tensorflow": re.compile(
        r"^[^:\s]*:[A-Z][A-Za-z0-9]+$|^tf\.function|^Eager(?:Local)?Execute|FunctionRun|^SessionRun"
    ),
    "pytensor": re.compile(r"^pytensor::"),
    "theano": re.compile(r"^theano::"),
    "chainer": re.compile(r"^chainer::"),
    "caffe2": re.compile(r"^caffe2::"),
    "mxnet": re.compile(r"^mxnet::"),
    "onnxruntime": re.compile(r"^onnxruntime::"),
    "openvino": re.compile(r"^openvino::"),
}
_KERNELS = {
    "torch": re.compile(r"\bat::|\bc10::|at_cuda_detail|THCTensor"),
    "tensorflow": re.compile(r"tensorflow::"),
}


def framework(events: EventTable) -> str | None:
    """Guess the framework from the names of ops, ranges and frames, else from kernels."""
    for patterns, kinds in ((_OPS, ("op", "step", "range", "python")), (_KERNELS, ("kernel",))):
        codes, texts = events.texts("name")
        counts = np.bincount(codes[events.is_kind(*kinds)], minlength=len(texts) + 1)
        votes: Counter[str] = Counter()
        for count, text in zip(counts.tolist(), texts, strict=False):
            if count:
                votes.update({name: count for name, p in patterns.items() if p.search(text)})
        if votes:
            return votes.most_common(1)[0][0]
    return None
