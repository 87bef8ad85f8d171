"""The form of a row is what its operators show: how many of what, at two lengths of a sequence."""

import importlib
from collections import Counter
from typing import Any

import pytest

from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP, TABLE, Implementation
from lstmprof.workloads import Workload, batch

LENGTHS = (3, 6)
#: Operators that compute a whole layer, and those that compute one time step.
LAYER_OPS = ("aten::lstm", "BlockLSTM", "BlockLSTMV2", "CudnnRNNV3")
CELL_OPS = ("aten::lstm_cell", "LSTMBlockCell")
#: Need a C++ compiler and a while.
COMPILED = ("torch-compile", "torch-compile-layer", "torch-aot-inductor")


def workload(time_steps: int) -> Workload:
    return Workload("tiny", 1, 4, False, 2, time_steps, 3, 2, "ce")


def form(at_each_length: list[Counter[str]]) -> str:
    """One layer op at any length; one cell op per time step, or one in a loop; else a loop."""
    if all(sum(counts[op] for op in LAYER_OPS) == 1 for counts in at_each_length):
        return LAYER_OP
    cells = [sum(counts[op] for op in CELL_OPS) for counts in at_each_length]
    return CELL_OP if cells in (list(LENGTHS), [1, 1]) else LOOP


def rows(framework: str) -> list[Any]:
    """Those that run on a CPU and need no compiler."""
    return [
        pytest.param(row, id=row.name)
        for row in TABLE
        if row.framework == framework and "cpu" not in row.refusals() and not row.library
    ]


@pytest.mark.parametrize("row", [r for r in rows("torch") if r.id not in COMPILED])
@pytest.mark.filterwarnings(r"ignore:.torch\.jit\.script(_method)?. is:DeprecationWarning")
def test_torchs_forms_are_those_of_its_profiles(row: Implementation) -> None:
    torch = pytest.importorskip("torch")
    file = importlib.import_module(row.module)

    def counts(time_steps: int) -> Counter[str]:
        module = file.build(workload(time_steps))
        inputs: Any = batch(workload(time_steps), 0).inputs
        with torch.profiler.profile() as profile:
            module(torch.from_numpy(inputs))
        return Counter(event.name for event in profile.events())

    assert form([counts(length) for length in LENGTHS]) == row.form_on("cpu")


@pytest.mark.parametrize("row", rows("tensorflow"))
def test_tensorflows_forms_are_those_of_its_graphs(row: Implementation) -> None:
    tf = pytest.importorskip("tensorflow")
    file = importlib.import_module(row.module)

    def counts(time_steps: int) -> Counter[str]:
        module, shape = file.build(workload(time_steps)), (time_steps, 2, 3)
        traced = tf.function(module, autograph=False).get_concrete_function(tf.TensorSpec(shape))
        graph = traced.graph.as_graph_def()
        bodies = (node for function in graph.library.function for node in function.node_def)
        return Counter(node.op for node in (*graph.node, *bodies))

    assert form([counts(length) for length in LENGTHS]) == row.form_on("cpu")
