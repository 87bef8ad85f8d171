"""The refusal of a workload that a loop does not know."""

from __future__ import annotations

from lstmprof.errors import CaptureError
from lstmprof.workloads import Workload


def refuse_unless_classifier(workload: Workload, framework: str) -> None:
    """Nothing, for an LSTM of features under a head, trained by Adam.

    Raises:
        CaptureError: the workload is another; says in what.
    """
    known = (
        (workload.cell == "lstm", "the cell '{}'".format(workload.cell)),
        (workload.loss in ("ce", "mse", "ctc"), "the loss '{}'".format(workload.loss)),
        (workload.optimizer == "adam", "the optimizer '{}'".format(workload.optimizer)),
        (workload.head, "a network without an output layer"),
        (not workload.each_step, "a loss at every time step"),
        (not workload.vocabulary, "tokens as inputs"),
    )
    for is_known, what in known:
        if not is_known:
            raise CaptureError(
                "the implementations on {} do not know {}".format(framework, what),
                "use one of another framework, or another --workload",
            )
