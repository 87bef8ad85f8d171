"""Layers and directions by widths, and the operations of a network against the roofline's table."""

import pyarrow as pa
import pytest
from events.rows import row, table

from lstmprof.breakdown.recurrent.network import Network, dtype_named, stack
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs
from lstmprof.diagnose.roofline.work import costs, flops
from lstmprof.workloads import Workload


def units(*widths: int, hidden: int = 16) -> list[Network]:
    return [Network("lstm", inputs=width, hidden=hidden, cells=9) for width in widths]


@pytest.mark.parametrize(
    ("widths", "found"),
    [
        ((10,), (1, 1)),
        ((10, 16, 16), (3, 1)),
        ((10, 10, 32, 32), (2, 2)),
        ((16, 16, 16), None),
        ((10, 10), None),  # a layer that ran twice, or two directions
        ((16, 16), None),
        ((10, 12), None),
    ],
)
def test_what_units_read_tells_layers_and_directions(
    widths: tuple[int, ...], found: tuple[int, int] | None
) -> None:
    whole = stack(units(*widths))
    assert (whole and (whole.layers, whole.directions)) == found


def test_units_of_several_widths_are_no_stack() -> None:
    assert stack([*units(10), *units(16, hidden=8)]) is None


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True), (3, False)])
def test_operations_are_those_of_the_roofline(cell: str, layers: int, bidirectional: bool) -> None:
    workload = Workload("w", layers, 16, bidirectional, 6, 9, 10, 5, "ce", cell=cell)
    network = Network(cell, 9, 6, 10, 16, layers, workload.directions, rows=54)
    for mode in ("forward", "train"):
        rows = [c for c in costs(workload, mode) if c.part in ("input", "recurrent")]
        assert network.flops(backward=mode == "train") == flops(rows)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float", "float32"), ("c10::Half", "float16"), ("bf16", "bfloat16"), ("Scalar", None)],
)
def test_element_types_have_one_name(name: str, dtype: str | None) -> None:
    assert dtype_named(name) == dtype


def test_operations_that_no_count_holds_are_unknown() -> None:
    size = 2**20
    sizes = {"rows": size, "inputs": size, "layers": 1, "directions": 1}
    assert Network("lstm", hidden=1, **sizes).flops(backward=True)
    assert Network("lstm", hidden=size, **sizes).flops(backward=False) is None


def test_a_shape_that_no_tensor_has_is_not_recorded() -> None:
    op = table([row("op", "aten::lstm", 0, 1, pid=1, tid=1)])
    shapes = "[[2,4294967296],[4294967296,4294967296],[281474976710657,0]]"
    inputs = Inputs(op.with_columns({"shapes": pa.array([shapes])}))
    assert inputs.shapes(0) == [(2, 2**32), None, None]
