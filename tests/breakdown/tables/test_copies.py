"""The copy table, and what names say of a copy."""

from __future__ import annotations

import pytest
from events.rows import row, table

from lstmprof.base.errors import RunError
from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.calls import direction, host_memory
from lstmprof.events.annotate.steps import windows

copies = TABLES["copies"].of

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}
IN = "Memcpy HtoD (Pageable -> Device)"


@pytest.mark.parametrize(
    ("name", "way", "memory"),
    [
        (IN, "HtoD", "pageable"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH", "pinned"),
        ("Memcpy DtoD (Device -> Device)", "DtoD", None),
        ("Memcpy PtoP (Device -> Device)", "PtoP", None),
        ("Memcpy HtoH (Pinned -> Pageable)", "HtoH", "pinned"),
        ("Memcpy HtoD (Host -> Device)", "HtoD", None),
        ("Memcpy HtoA (Pinned -> Array)", "HtoD", "pinned"),
        ("MemcpyH2D", "HtoD", None),
        ("[CUDA memcpy DtoH]", "DtoH", None),
        ("[CUDA memcpy Host-to-Device]", "HtoD", None),
        ("CopyDeviceToDevice", "DtoD", None),
        ("copyBuffer", None, None),
        ("Memset (Device)", None, None),
    ],
)
def test_a_name_says_which_way_a_copy_goes(name: str, way: str | None, memory: str | None) -> None:
    assert (direction(name), host_memory(name)) == (way, memory)


def test_copies_are_grouped_by_way_and_memory_with_their_bandwidth() -> None:
    # step 0…50: two HtoD of 400 + 100 bytes in 10 + 15 ns, a memset of 64 bytes; a DtoH later
    rows = [
        row("step", "ProfilerStep#1", 0, 50, **HOST),
        row("memcpy", IN, 5, 15, **GPU, bytes=400),
        row("memcpy", IN, 20, 35, **GPU, bytes=100),
        row("memset", "Memset (Device)", 36, 40, **GPU, bytes=64),
        row("memcpy", "Memcpy DtoH (Device -> Pinned)", 60, 62, **GPU),
    ]
    events = annotated(table(rows), captured=True)
    found = copies(events, windows(events, captured=True)).to_pylist()
    by_way = {(r["kind"], r["direction"], r["host_memory"]): r for r in found}
    into, out = by_way["memcpy", "HtoD", "pageable"], by_way["memcpy", "DtoH", "pinned"]
    assert (into["count"], into["per_step"], into["bytes"], into["total_ns"]) == (2, 2.0, 500, 25)
    assert into["bytes_per_s"] == pytest.approx(500 / 25e-9)
    assert (out["count"], out["per_step"], out["bytes"], out["bytes_per_s"]) == (1, 0.0, None, None)
    assert by_way["memset", None, None]["bytes"] == 64
    assert len(found) == 3


def test_an_empty_profile_has_no_copies() -> None:
    events = annotated(table([]), captured=False)
    assert copies(events, []).num_rows == 0


def test_rows_of_one_total_stand_by_way_then_by_lane_and_memory() -> None:
    names = [IN, "Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "copyBuffer", "MemcpyD2H"]
    rows = [
        row("memset" if "set" in name else "memcpy", name, 9 * i, 9 * i + 2, device=d, stream=7)
        for i, name in enumerate(names)
        for d in (1, 0)
    ]
    found = copies(annotated(table(rows), captured=False), []).to_pylist()
    lanes = [(r["kind"], r["direction"], r["device"], r["host_memory"]) for r in found]
    assert lanes == [
        ("memcpy", "DtoH", 0, None),
        ("memcpy", "DtoH", 1, None),
        *(("memcpy", "HtoD", d, memory) for d in (0, 1) for memory in ("pageable", "pinned")),
        *(("memcpy", None, d, None) for d in (0, 1)),
        *(("memset", None, d, None) for d in (0, 1)),
    ]


def test_sizes_that_are_more_than_a_number_are_refused() -> None:
    rows = [row("memcpy", IN, i, i + 1, **GPU, bytes=2**62) for i in range(3)]
    with pytest.raises(RunError, match=r"copies: .* exceeds 64 bits"):
        copies(annotated(table(rows), captured=False), [])
