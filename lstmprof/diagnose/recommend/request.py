"""The network and conditions of a recommendation, from options or from a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lstmprof import workloads
from lstmprof.capture.request import CaptureRequest, check_device
from lstmprof.diagnose.shapes import Shape, is_here
from lstmprof.errors import UsageError
from lstmprof.workloads.studies import NAMED

#: The network, but for the sizes that are given.
BASE = NAMED[0]


def request_of(
    shape: Shape | None,
    sizes: Mapping[str, Any],
    conditions: Mapping[str, Any],
    progress: Callable[[str], None],
) -> CaptureRequest:
    """Return the request that all candidates share; the implementation in it is a placeholder.

    Args:
        shape: network and conditions of a run, or None.
        sizes: fields of ``Workload``; None is not given.
        conditions: device, precision, mode and threads; None is not given.
        progress: called with a line if the run was on a GPU and this machine has none.

    Raises:
        UsageError: neither ``shape`` nor a size is given, or both are; or the device is unknown.
    """
    sizes = {name: value for name, value in sizes.items() if value is not None}
    asked: dict[str, Any] = {k: value for k, value in conditions.items() if value is not None}
    if shape is None and not sizes:
        raise UsageError(
            "no network is described", "give --like, or --hidden, --batch and --time-steps"
        )
    if shape is None:
        network = workloads.with_overrides(BASE, **sizes)
        return _checked(CaptureRequest("torch-nn-lstm", network, peaks=False, **asked))
    if sizes:
        raise UsageError(
            "--like already sets the sizes of the network", "omit --like, or omit the size options"
        )
    of_run: dict[str, Any] = {"precision": shape.precision, "mode": shape.mode}
    of_run |= {"device": shape.device, "threads": shape.threads, "seed": shape.seed}
    if not is_here(shape.device) and "device" not in asked:
        progress("the run used a GPU, which this machine lacks; measuring on the CPU")
        of_run["device"] = "cpu"
    fields = {**of_run, **asked}
    return _checked(CaptureRequest("torch-nn-lstm", shape.workload, peaks=False, **fields))


def _checked(request: CaptureRequest) -> CaptureRequest:
    check_device(request)  # once, not for every candidate
    return request
