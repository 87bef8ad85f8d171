"""Ops that TensorFlow's profiler leaves out on a CPU: those that its executor reckons short.

For each op of a graph the executor keeps a moving mean of the cycles that it took, and from less
than 8,000 on (5,000 in older versions) the profiler records it no more (``KernelStats`` and
``GetTFTraceMeLevel`` in its source; with 2.21 no ``host_tracer_level`` changed that). The ledger
has their time as dispatch.
"""

from __future__ import annotations

from lstmprof.diagnose import causes
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import milliseconds

_DISPATCH = ("idle", "dispatch")
#: What the profiler records around a graph that TensorFlow's executor runs.
_EXECUTOR = frozenset(("KernelAndDeviceFunc::Run", "FunctionRun", "SessionRun"))
_BUSY = (causes.GEMM, causes.MEMORY, causes.COPY, causes.CAST)
_LEFT_OUT = "TensorFlow records no op on a CPU that it reckons short"


def doubt_of(finding: Finding) -> str | None:
    """Why ``finding`` may be of ops that one profile left out; None where it is not.

    Dispatch of the slow step may hold some; work that the slow step has more of may be in the
    dispatch of the fast one, where that is as long.
    """
    fast, slow = finding.fast, finding.slow
    if finding.kind == causes.DISPATCH and leaves_out(slow):
        return f"{_LEFT_OUT}, and what these took counts as dispatch"
    if finding.kind not in _BUSY or fast is None or not leaves_out(fast):
        return None
    dispatch_ns = fast.parts.get(_DISPATCH, 0)
    if dispatch_ns < finding.delta_ns:
        return None
    where = f"some of this may be in the {milliseconds(dispatch_ns)} ms of dispatch of {fast.name}"
    return f"{_LEFT_OUT}: {where}"


def leaves_out(profile: StepProfile) -> bool:
    """Return whether a profile on a CPU is of that executor."""
    if profile.device is not None or not profile.parts.get(_DISPATCH):
        return False
    return any(contributor.name in _EXECUTOR for contributor in profile.contributors)
