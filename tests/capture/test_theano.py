"""A capture in Theano's own interpreter; and which BLAS its operators are linked to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from implementations.in_era import interpreter_of

from lstmprof import formats, implementations, workloads
from lstmprof.breakdown.tables import TABLES
from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import reference
from lstmprof.capture.worker.loops._cpu import linker_flags
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
#: every operator in Python: compiling them in C takes minutes
PLAIN = "cxx=,optimizer=fast_compile"
LIBRARIES: dict[str, dict[str, str]] = {
    "theano-scan": {},
    "lasagne-lstm": {"lasagne": "0.1"},
    "keras-theano-lstm": {"keras": "2.1.6"},
}
NETWORK = ("time_steps", "batch", "hidden", "layers", "directions", "dtype", "cell", "form")


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_capture_has_steps_phases_and_operators_within_scans(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter_of(implementations.find(name).era)
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("THEANO_FLAGS", PLAIN)
    request = CaptureRequest(
        *(name, CE, "cpu"),
        **{"iterations": 2, "warmup": 1, "profile_steps": 2, "peaks": False},
        python=str(python),
    )
    result = capture(request, tmp_path / "capture", lambda line: None)
    facts, losses = result.metadata, result.timings["loss"]
    right = reference.outcome(CE, workloads.weights(CE, 0), workloads.batch(CE, 0))
    assert losses[0] == pytest.approx(right.loss, rel=1e-5)
    assert facts["loss_fell"] is True
    assert facts["versions"].items() >= {"theano": "1.0.5", **LIBRARIES[name]}.items()
    assert facts["backend"] == "vm, fast_compile"
    assert facts["settings"]["blas"] == "NumPy's"
    assert facts["settings"]["environment"]["THEANO_FLAGS"] == PLAIN
    assert facts["kernels_used"] == "separate Theano operators in a Scan"

    events = annotated(formats.read(result.profiles[0]).events, captured=True)
    rows = events.to_pylist()
    assert [row["kind"] for row in rows].count("step") == 2
    products = [row for row in rows if row["category"] == "gemm"]
    assert {row["phase"] for row in products} >= {"forward", "backward"}
    took_ns = {True: 0, False: 0}
    for row in rows:
        if row["category"] is not None:
            took_ns[row["category"] == "other"] += row["dur_ns"]
    assert took_ns[True] <= 0.02 * took_ns[False]
    (layer,) = TABLES["layers"].of(events, windows(events, captured=True)).to_pylist()
    told = tuple(layer[fact] for fact in NETWORK)
    assert told == (5, 2, 4, 1, 1, "float32", "lstm", "loop")
    assert json.dumps(dict(facts))


@pytest.mark.parametrize(
    ("library", "flags"),
    [
        ("libopenblasp-r0-2d23e62b.3.17.so", "-L{} -lopenblasp-r0-2d23e62b.3.17"),
        ("libopenblas64_p-r0-0cf96a72.3.23.dev.so", None),  # with names of its own
        ("libgfortran-040039e1.so.5.0.0", None),
    ],
)
def test_a_compiler_is_shown_the_openblas_whose_functions_have_the_usual_names(
    library: str, flags: str | None, tmp_path: Path
) -> None:
    place = tmp_path / "numpy.libs"
    place.mkdir()
    (place / library).touch()
    assert linker_flags(str(tmp_path)) == (flags and flags.format(place))


def test_a_folder_whose_name_cuts_a_flag_in_two_is_not_shown(tmp_path: Path) -> None:
    place = tmp_path / "site packages" / "numpy.libs"
    place.mkdir(parents=True)
    (place / "libopenblas.so").touch()
    assert linker_flags(str(place.parent)) is None
