"""Shapes recorded apart from the profile find their ops again."""

from __future__ import annotations

import json
from pathlib import Path

from events.rows import Row, row

from lstmprof.capture.op_inputs import with_inputs
from lstmprof.capture.worker.shapes import inputs_in_trace, inputs_of, inputs_of_tensors, written
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import EventTable, events_table

HOST = {"pid": 1, "tid": 1}


def profile(*names: str, steps: int = 2) -> EventTable:
    """Steps that run these ops, one after the other."""
    rows: list[Row] = []
    for step in range(steps):
        for name in names:
            at = 10 * len(rows)
            rows.append(row("op", name, at, at + 5, step=step, **HOST))
    columns = [n for n in SCHEMA.names if n != "event_id"]
    return events_table({n: [r[n] for r in rows] for n in columns})


def joined(
    events: EventTable, tmp_path: Path, *inputs: tuple[str, list[list[int]]]
) -> list[object]:
    path = written([(name, shapes, ["float"]) for name, shapes in inputs], str(tmp_path / "s.json"))
    assert path is not None
    return list(with_inputs(events, Path(path)).column("shapes").to_pylist())


def test_ops_of_a_name_get_shapes_in_their_order(tmp_path: Path) -> None:
    events = profile("aten::mm", "aten::mul", "aten::mm")
    recorded = (("aten::mm", [[1, 2]]), ("aten::mm", [[3, 4]]))
    assert joined(events, tmp_path, *recorded) == ["[[1,2]]", None, "[[3,4]]"] * 2


def test_other_numbers_of_ops_get_shapes_only_where_all_agree(tmp_path: Path) -> None:
    events = profile("aten::mm", "aten::mm", "aten::mul")
    recorded = (
        *[("aten::mm", [[1, 2]])] * 3,
        *(("aten::mul", [[1]]), ("aten::mul", [[2]])),
    )
    assert joined(events, tmp_path, *recorded) == ["[[1,2]]", "[[1,2]]", None] * 2


def test_a_node_of_a_function_that_was_inlined_is_found(tmp_path: Path) -> None:
    events = profile("StatefulPartitionedCall/model/dense/MatMul:_MklMatMul", steps=1)
    assert joined(events, tmp_path, ("model/dense/MatMul", [[], [40, 7]])) == ["[[],[40,7]]"]


def test_inputs_with_a_step_belong_to_that_step_and_only_if_it_has_as_many_ops(
    tmp_path: Path,
) -> None:
    events = profile("aten::lstm", "aten::gru", "aten::gru")
    numbers = [("aten::lstm", 0), ("aten::lstm", 1), ("aten::gru", 0), ("aten::gru", 0)]
    inputs = [(name, [[step]], ["float"], step) for name, step in numbers]
    path = written([*inputs, ("aten::gru", [[9]], ["float"], 1)], str(tmp_path / "s.json"))
    assert path is not None
    shapes = with_inputs(events, Path(path)).column("shapes").to_pylist()
    assert shapes == ["[[0]]", "[[0]]", "[[0]]", "[[1]]", None, None]


def test_nodes_of_a_loop_are_those_of_the_function_of_its_body(tmp_path: Path) -> None:
    node = "forward/while/body/_1/forward/while/add:_MklNativeFusedMatMul"
    events = profile(node, node, "forward/while/body/_1/forward/while/Tanh:Tanh")
    recorded = (
        ("forward/while/add", [[6, 64], [64]]),
        ("forward/while/add:_FusedMatMul", [[6, 26], [26, 64]]),
        ("forward/while/Tanh", [[6, 16]]),
    )
    assert joined(events, tmp_path, *recorded) == ["[[6,26],[26,64]]"] * 2 + ["[[6,16]]"] + [
        *["[[6,26],[26,64]]"] * 2,
        "[[6,16]]",
    ]


def test_a_trace_tells_the_inputs_in_the_order_in_which_ops_began(tmp_path: Path) -> None:
    def op(name: str, at: float, length: float, **args: object) -> dict[str, object]:
        return {"cat": "cpu_op", "name": name, "ts": at, "dur": length, "args": args}

    inner = op("aten::mm", 2, 1, **{"Input Dims": [[3, 4]], "Input type": ["float"]})
    outer = op("aten::linear", 2, 5, **{"Input Dims": [[1, 2]], "Input type": ["float"]})
    trace = {"traceEvents": [inner, op("detach", 1, 1), {"name": "x", "ph": "M"}, outer]}
    (tmp_path / "t.json").write_text(json.dumps(trace))
    assert inputs_in_trace(str(tmp_path / "t.json")) == [
        ("aten::linear", [[1, 2]], ["float"]),
        ("aten::mm", [[3, 4]], ["float"]),
    ]


def test_a_shape_that_is_not_static_is_none() -> None:
    tensors = [([6, None], "float32"), (None, "int32"), ([3], "float32")]
    assert inputs_of_tensors("x", tensors) == ("x", [[], [], [3]], ["float32", "int32", "float32"])


class Placeholder:
    """As TensorFlow 2.8 adds one to the condition of a loop: its list of inputs was never made."""

    name, type = "while/cond/x", "Placeholder"

    @property
    def inputs(self) -> tuple[object, ...]:
        return self._inputs_val  # type: ignore[attr-defined,no-any-return]


def test_a_node_that_lacks_the_list_of_its_inputs_has_none() -> None:
    assert list(inputs_of([Placeholder()])) == [("while/cond/x", [], [])]
