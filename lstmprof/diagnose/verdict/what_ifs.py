"""Forecast the slow step with a change that the user requests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lstmprof.base.errors import UsageError
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.replay import (
    CHANGES,
    ERRORS,
    Change,
    Error,
    Prediction,
    as_layer_op,
    compiled,
    faster_gemms,
    what_if,
)
from lstmprof.diagnose.roofline import Peaks, Roofline, gemm_factor, workload_of
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.verdict.sentences import what_if_sentence
from lstmprof.workloads import Workload

#: Name of a change that ``CHANGES`` lacks: matmuls run at the peak rate of the device.
GEMM_AT_ROOFLINE = "gemm at roofline"
#: Change → words for users if its name does not explain itself.
_IN_WORDS = {GEMM_AT_ROOFLINE: "matmuls at their roofline time"}
#: Form of recurrent layers, as in the option ``--as`` → words for users.
FORM_NAMES = {"layer": "as one layer op", "compiled": "compiled"}


@dataclass(frozen=True)
class DiagnosisOptions:
    """Options of a diagnosis. An option is None if lstmprof chooses."""

    without: tuple[str, ...] = ()  # names in ``CHANGES``
    gemm_at_roofline: bool = False
    peaks: Peaks | None = None  # None: measured with the runs
    rank: int | None = None
    device: int | None = None
    forms: tuple[str, ...] = ()  # names in ``names.FORMS``


@dataclass(frozen=True)
class WhatIf:
    """A forecast of the slow step with one change."""

    name: str
    prediction: Prediction
    form: str | None = None  # new form of the layers, None for other changes

    @property
    def error(self) -> Error | None:
        """Return the measured error of forecasts for this form."""
        return None if self.form is None else ERRORS.get(self.form)

    @property
    def sentence(self) -> str:
        words = _IN_WORDS.get(self.name, self.name)
        return what_if_sentence(words, self.prediction, self.form, self.error)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
        prediction = self.prediction
        bottleneck = prediction.bottleneck or (None, None, None)
        return {
            "change": self.name,
            "observed_ns": prediction.observed_ns,
            "replayed_ns": prediction.replayed_ns,
            "predicted_ns": prediction.predicted_ns,
            "saved_ns": prediction.saved_ns,
            "bottleneck": dict(zip(("state", "part", "ns"), bottleneck, strict=True)),
            "form": self.form,
            "error": None if self.error is None else asdict(self.error),
            "sentence": self.sentence,
        }


def what_ifs_of(
    breakdown: Breakdown, profile: StepProfile, limit: Roofline | None, wanted: DiagnosisOptions
) -> tuple[WhatIf, ...]:
    """Forecast the step for each change that the user requests."""
    changes: dict[str, Change] = {f"without {name}": CHANGES[name] for name in wanted.without}
    if wanted.gemm_at_roofline:
        changes[GEMM_AT_ROOFLINE] = faster_gemms(gemm_factor(profile, limit))
    forms = {FORM_NAMES[form]: form for form in wanted.forms}
    changes |= {name: _form(form, profile, limit) for name, form in forms.items()}
    if not changes:
        return ()
    replays = what_if(breakdown, profile.rank_device, list(changes.values()))
    return tuple(
        WhatIf(name, replay, forms.get(name)) for name, replay in zip(changes, replays, strict=True)
    )


def _form(form: str, profile: StepProfile, limit: Roofline | None) -> Change:
    """Return the change that runs all layers in another form, such as one op each."""
    if form == "compiled":
        return compiled
    workload = workload_of(profile.info)
    if workload is None or profile.info.mode is None:
        raise UsageError(
            f"{profile.name}: the network is unknown, and --as layer needs it",
            "give a run of lstmprof capture",
        )
    share = recurrent_share(workload, profile.info.mode)
    return as_layer_op(share, gemm_factor(profile, limit))


def recurrent_share(workload: Workload, mode: str) -> float:
    """Return the share of matmul work that must wait for the previous time step."""
    whole = recurrent = 0
    for layer in range(workload.layers):
        inputs = workload.directions * workload.hidden if layer else workload.features
        # count forward operations per unit: I for the inputs, H for the state (recurrent)
        operations = inputs + workload.hidden
        whole, recurrent = whole + operations, recurrent + workload.hidden
        if mode == "train":
            # a first layer without an embedding needs no gradient of the inputs
            no_input_gradients = layer == 0 and not workload.vocabulary
            # count backward operations: I for the inputs, H for the state, I + H for the weights
            whole += 2 * operations - inputs * no_input_gradients
            recurrent += workload.hidden
    return recurrent / whole
