"""The cast table by hand on a few rows."""

from __future__ import annotations

from events.rows import Row, row, table

from lstmprof.breakdown.tables.casts import casts
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import events_table

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}
HALF = {"dtypes": '["c10::Half","float","Scalar"]', "shapes": "[[4,8],[4,8],[]]"}


def chain(at: int, *around: str, **recorded: object) -> list[Row]:
    """``aten::copy_`` at ``at`` inside these, the outermost first, and its kernel of 3 ns."""
    rows = [row("op", name, at + i, at + 40 - i, **HOST) for i, name in enumerate(around)]
    rows.append(row("op", "aten::copy_", at + 10, at + 20, **HOST, **recorded))
    rows.append(row("runtime", "cudaLaunchKernel", at + 12, at + 13, **HOST, correlation_id=at))
    return [*rows, row("kernel", "k", at + 50, at + 53, **GPU, correlation_id=at)]


def found(rows: list[Row]) -> list[dict[str, object]]:
    columns = [n for n in SCHEMA.names if n != "event_id"]
    events = annotated(events_table({n: [r[n] for r in rows] for n in columns}), captured=False)
    return casts(events, windows(events, captured=False)).to_pylist()


def test_a_cast_goes_to_the_op_that_wanted_it_with_types_and_bytes() -> None:
    # linear > to > _to_copy > copy_ (twice), and a cast that nobody asked for
    asked = ("aten::linear", "aten::to", "aten::_to_copy")
    rows = [*chain(100, *asked, **HALF), *chain(200, *asked, **HALF)]
    rows += chain(300, "aten::to", "aten::_to_copy")
    by_caller = {r["within"]: list(r.values()) for r in found(rows)}
    assert by_caller == {
        "aten::linear": [
            *(None, 0, "aten::to", "aten::linear", "float", "c10::Half"),
            *(2, None, 6, 2 * 4 * 8 * (4 + 2)),
        ],
        None: [None, 0, "aten::to", None, None, None, 1, None, 3, None],
    }


def test_a_copy_of_one_type_is_no_cast() -> None:
    same = '["float","float","Scalar"]'
    assert found(chain(100, "aten::contiguous", dtypes=same)) == []


def test_without_a_device_the_casting_ops_count() -> None:
    rows = [
        row("op", "forward/mul/Cast:Cast", 0, 9, **HOST, dtypes='["half"]', shapes="[[4]]"),
        row("op", "aten::to", 20, 30, **HOST),
        row("op", "aten::copy_", 22, 28, **HOST, **HALF),
    ]
    by_op = {r["op"]: r for r in found(rows)}
    assert list(by_op["forward/mul/Cast:Cast"].values()) == [
        *(None, None, "forward/mul/Cast:Cast", None, "half", None, 1, None, 9, None)
    ]
    assert (by_op["aten::to"]["total_ns"], by_op["aten::to"]["bytes"]) == (6, 32 * 6)


def test_a_kernel_that_no_op_launched_is_of_the_op_that_it_names() -> None:
    path = "jit(step)/convert_element_type"
    rows = [
        row("kernel", "convert_fusion", 10, 13, **GPU, op_name=path),
        row("kernel", "convert_fusion", 20, 24, **GPU),
    ]
    assert [(r["op"], r["total_ns"]) for r in found(rows)] == [(None, 4), (path, 3)]


def test_types_of_no_known_size_and_broken_shapes_leave_bytes_unknown() -> None:
    strange = {"dtypes": '["Strange","float"]', "shapes": "[[4],[4]]"}
    broken = {"dtypes": '["c10::Half","float"]', "shapes": '[["x"],3'}
    for recorded in (strange, broken):
        (one,) = found(chain(100, "aten::to", **recorded))
        assert one["bytes"] is None


def test_an_empty_profile_has_no_casts() -> None:
    events = annotated(table([]), captured=False)
    assert casts(events, []).num_rows == 0
