"""Check a user's network against the float64 reference of the workload.

The check compares loss, outputs and gradients of one small step. Loading the weights 1, 2, 3, …
shows which parameter of the network contains which weight of the workload.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List

import numpy as np

from lstmprof import workloads
from lstmprof.base.errors import CaptureError
from lstmprof.capture.worker import reference
from lstmprof.capture.worker.users_file import UsersFile
from lstmprof.workloads import Batch, Workload

#: Largest allowed error, relative to the largest element, as in the tests of implementations.
TOLERANCE = 1e-4
SEED = 5
NO_CLAIM = "has no load(), so its results were not checked against the reference"

Arrays = Dict[str, Any]


def computes_workload(
    file: UsersFile, workload: Workload, device: str, report: Callable[[str], None]
) -> bool:
    """Return False for a file without ``load``; raise CaptureError if results differ."""
    if not file.claims:
        report("{} {}".format(file.file.file_name, NO_CLAIM))
        return False
    errors = differences(file, small(workload), device)
    worst, error = max(errors.items(), key=lambda item: item[1])
    if not error <= TOLERANCE:
        raise CaptureError(
            "{} does not compute the workload's {}: the {} differs from the float64 reference by "
            "{:.2g} times the reference's largest element".format(
                file.file.file_name, workload.cell, worst, error
            ),
            "correct the network or load(); delete load() if you do not want this check",
        )
    report(
        "{} matches the float64 reference: loss, outputs and {} gradients within {:.1g}".format(
            file.file.file_name, len(errors) - 2, max(error, 1e-9)
        )
    )
    return True


def small(workload: Workload) -> Workload:
    """Return the workload with small sizes that differ from each other."""
    ctc = workload.loss == "ctc"
    sizes: Dict[str, Any] = {
        "hidden": 8,
        "batch": 3,
        "time_steps": 9 if ctc else 7,
        "features": 6,
        "classes": 5,
    }
    if workload.vocabulary:
        sizes["vocabulary"] = 11
    if not workload.head:
        sizes["classes"] = workload.directions * sizes["hidden"]
    lengths: Dict[str, Any] = {
        "labels": 2 if ctc else None,
        "shortest": workload.shortest and (5 if ctc else 2),
    }
    return dataclasses.replace(workload, data=None, **sizes, **lengths)


def differences(file: UsersFile, workload: Workload, device: str) -> Dict[str, float]:
    """Return the relative error of loss, outputs and each gradient."""
    element_numbers = _element_numbers(file, workload)
    weights, batch = workloads.weights(workload, SEED), workloads.batch(workload, SEED)
    right = reference.outcome(workload, weights, batch)
    network = file.build(workload)
    file.load(network, weights)
    inputs: Any = batch.inputs
    if not file.TIME_MAJOR:
        inputs = inputs.swapaxes(0, 1)
    laid = Batch(np.ascontiguousarray(inputs), batch.targets, batch.lengths)
    loss, outputs, gradients = file.first_step(network, workload, laid, device)
    if workload.every_step and not file.TIME_MAJOR:
        outputs = outputs.swapaxes(0, 1)
    shared = _summed(gradients, element_numbers, workload)
    errors = {"loss": _error(loss, right.loss), "output": _error(outputs, right.outputs)}
    for name, gradient in right.gradients.items():
        errors["gradient of " + name] = _error(shared[name], gradient)
    return errors


def _error(value: Any, right: Any) -> float:
    right = np.asarray(right)
    return float(np.abs(value - right).max() / (np.abs(right).max() or 1.0))


def _element_numbers(file: UsersFile, workload: Workload) -> List[Any]:
    """Return which elements of the weights each parameter of the network contains."""
    first, second = (_loaded(file, workload, factor) for factor in (1, 2))
    element_numbers = []
    for (name, numbers), doubled in zip(first.items(), second.values()):
        moved = doubled - numbers
        elements = np.rint(moved).astype(np.int64)
        if not ((np.abs(elements) <= _count(workload)) & (moved == elements)).all():
            raise CaptureError(
                "{}: load() changes the values of the shared weights in {}".format(
                    file.file.file_name, name
                ),
                "only copy, transpose, split or reorder them",
            )
        # write 3 for element 3 of the weights, -4 for the negated element 4, 0 for a constant zero
        element_numbers.append(elements)
    return element_numbers


def _loaded(file: UsersFile, workload: Workload, factor: int) -> Arrays:
    """Load the weights 1, 2, 3, … times a factor; return the network's parameters."""
    weights, start = {}, 1
    for name, shape in workloads.parameter_shapes(workload).items():
        size = int(np.prod(shape))
        numbers = np.arange(start, start + size, dtype=np.float32) * factor
        weights[name] = numbers.reshape(shape)
        start += size
    network = file.build(workload)
    file.load(network, weights)
    return {name: np.asarray(value, np.float64) for name, value in file.values(network).items()}


def _count(workload: Workload) -> int:
    return sum(int(np.prod(s)) for s in workloads.parameter_shapes(workload).values())


def _summed(gradients: Arrays, element_numbers: List[Any], workload: Workload) -> Arrays:
    """Sum the gradients of network parameters into gradients of the weights."""
    flat = np.zeros(_count(workload) + 1)
    for own, elements in zip(gradients.values(), element_numbers):
        gradient = np.asarray(own, np.float64) * np.sign(elements)
        np.add.at(flat, np.abs(elements).ravel(), gradient.ravel())
    shapes = workloads.parameter_shapes(workload)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    parts = np.split(flat[1:], ends[:-1])
    return {name: part.reshape(shapes[name]) for name, part in zip(shapes, parts)}
