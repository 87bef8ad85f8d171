"""Why torch.compile compiled a function again, as PyTorch really reports it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lstmprof.capture.own.recompiled import change_of, recompiled_by_torch

torch: Any = pytest.importorskip("torch")
dynamo: Any = pytest.importorskip("torch._dynamo")


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    dynamo.reset()
    yield
    dynamo.reset()


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


def noted() -> dict[str, Any]:
    """Return the only entry, without what is None."""
    (entry,) = recompiled_by_torch() or ()
    return {name: value for name, value in entry.items() if value is not None}


def test_a_function_that_is_compiled_once_is_left_out() -> None:
    double = compiled(lambda x: x * 2)
    for _ in range(3):
        double(torch.ones(3))
    assert recompiled_by_torch() is None


def test_sizes_compile_a_function_again() -> None:
    def scale(x: Any) -> Any:
        return x * 2

    step = compiled(scale, dynamic=False)
    for length in (3, 4, 5):
        step(torch.ones(2, length))
    assert noted() == {
        **{"function": "scale", "times": 2, "changed": "size"},
        **{"argument": "dimension 1 of x", "before": "4", "after": "5"},
    }


def test_the_latest_change_is_noted_whichever_version_ran_last() -> None:
    def scale(x: Any) -> Any:
        return x * 2

    step = compiled(scale)
    step(torch.ones(3))
    step(torch.ones(3).double())
    step(torch.ones(3))
    step(torch.ones(3).long())
    assert noted()["times"] == 2
    assert noted()["changed"] == "dtype"
    assert (noted()["before"], noted()["after"]) == ("Double", "Long")


def test_an_attribute_that_changes_makes_torch_compile_give_up() -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc, name-defined]
        steps = 0

        def forward(self, x: Any) -> Any:
            return x * self.steps

    counter = Counter()
    step = compiled(counter)
    limit = dynamo.config.recompile_limit
    for number in range(limit + 3):
        counter.steps = number
        step(torch.ones(3))
        entry = (recompiled_by_torch() or [{}])[0]
        assert entry.get("limit") == (limit if number >= limit else None)
        assert entry.get("times", 0) == min(number, limit - 1)
    assert noted() == {
        **{"function": "Counter.forward", "times": limit - 1, "limit": limit},
        **{"changed": "value", "argument": "self.steps", "before": str(limit - 1)},
    }


def test_a_list_that_grows_compiles_a_function_again() -> None:
    def total(parts: Any) -> Any:
        return sum(parts)

    step = compiled(total)
    for count in (1, 2):
        step([torch.ones(3)] * count)
    assert noted() == {
        **{"function": "total", "times": 1, "changed": "length"},
        **{"argument": "parts", "before": "1"},
    }


def test_a_new_backend_compiles_a_function_again() -> None:
    def scale(x: Any) -> Any:
        return x * 2

    for _ in range(2):
        torch.compile(scale, backend=lambda graph, _: graph)(torch.ones(3))
    assert (noted()["function"], noted()["changed"]) == ("scale", "function")


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        (  # PyTorch 2.1 to 2.5
            "tensor 'L['x']' size mismatch at index 0. expected 3, actual 4",
            ("size", "dimension 0 of x", "3", "4"),
        ),
        ("L['rate'] == 0.1    # return x * rate  # train.py:3 in step", ("value", "rate", "0.1")),
        ("G['i'] == 0", ("value", "i", "0")),
        ("L['x'].size()[1] == 7", ("size", "dimension 1 of x", "7")),
        ("2 <= x.size()[0]  # x.sum()", ("size", "dimension 0 of x")),
        ("mask is None  # if mask is None:", ("value", "mask", "None")),
        ("tensor 'x' rank mismatch. expected 1, actual 2", ("rank", "x", "1", "2")),
        (
            "___check_type_id(rate, 1405139), type=<class 'int'>  # x * rate",
            ("type", "rate"),
        ),
        ("___check_obj_id(L['fn'], 1405139)", ("object", "fn")),
        ("Cache line invalidated because L['self'] got deallocated", ("function",)),
        ("GLOBAL_STATE changed: grad_mode ", ("guard", None, "GLOBAL_STATE changed: grad_mode")),
        ("x == 3\nUser stack trace:\n  File", ("value", "x", "3")),
    ],
)
def test_the_forms_of_a_failed_guard(reason: str, change: tuple[Any, ...]) -> None:
    parts = dict(zip(("changed", "argument", "before", "after"), change, strict=False))
    assert change_of(reason) == {name: part for name, part in parts.items() if part is not None}


def test_reasons_without_versions_give_no_number() -> None:
    """As PyTorch 2.1 to 2.5 kept them."""

    def scale(x: Any) -> Any:
        return x * 2

    dynamo.utils.guard_failures[scale.__code__] += ["L['rate'] == 1", "L['rate'] == 2"]
    entry = noted()
    assert entry == {"function": "scale", "changed": "value", "argument": "rate", "before": "2"}


def test_a_pytorch_that_keeps_no_reasons_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    dynamo.utils.guard_failures["code"] = ["x == 3"]
    assert recompiled_by_torch() is None
    monkeypatch.delattr(dynamo.utils, "guard_failures")
    assert recompiled_by_torch() is None
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils")
    assert recompiled_by_torch() is None
