"""Very short ops, which TensorFlow's profiler omits on a CPU.

For each op of a graph TensorFlow's executor keeps a moving mean of its cycles. The profiler stops
recording the op if that mean falls below 8,000 (5,000 in older versions): ``KernelStats`` and
``GetTFTraceMeLevel`` in its source. With 2.21 no ``host_tracer_level`` changed that. The time of
these ops appears as dispatch.
"""

from __future__ import annotations

from lstmprof.diagnose import causes
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.numbers import milliseconds

_DISPATCH = ("idle", "dispatch")
#: Events that the profiler records around a graph that TensorFlow's executor runs.
_EXECUTOR = frozenset(("KernelAndDeviceFunc::Run", "FunctionRun", "SessionRun"))
_BUSY = (causes.GEMM, causes.MEMORY, causes.COPY, causes.CAST)
_LEFT_OUT = "TensorFlow omits very short CPU ops from its profile"


def doubt_of(finding: Finding) -> str | None:
    """Return a doubt if ``finding`` may be due to ops that one profile omits, else None.

    Dispatch of the slow step may contain such ops. Additional work of the slow step may be in the
    fast step's dispatch, if that dispatch is as long.
    """
    fast, slow = finding.fast, finding.slow
    if finding.kind == causes.DISPATCH and leaves_out(slow):
        return f"{_LEFT_OUT}; their time appears as dispatch"
    if finding.kind not in _BUSY or fast is None or not leaves_out(fast):
        return None
    dispatch_ns = fast.parts.get(_DISPATCH, 0)
    if dispatch_ns < finding.delta_ns:
        return None
    where = f"its {milliseconds(dispatch_ns)} ms of dispatch"
    return f"{_LEFT_OUT}; {labels(fast, slow)[0]} may spend some of this time in {where}"


def leaves_out(profile: StepProfile) -> bool:
    """Return whether a profile is of TensorFlow's executor on a CPU."""
    if profile.device is not None or not profile.parts.get(_DISPATCH):
        return False
    return any(contributor.name in _EXECUTOR for contributor in profile.contributors)
