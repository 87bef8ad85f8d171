"""What is printed adds up, and prints as text whatever a profile is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstmprof import terminal


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=20), st.integers(0, 3))
def test_rounded_parts_sum_to_the_rounded_whole(parts: list[int], digits: int) -> None:
    whole = sum(parts) / 1e6
    printed = terminal.parts_that_add_up([p / 1e6 for p in parts], whole, digits)
    total = sum(round(float(p) * 10**digits) for p in printed)
    assert total == round(whole * 10**digits)
    assert all(abs(float(p) - q / 1e6) <= 10**-digits for p, q in zip(printed, parts, strict=True))


def test_graph_nodes_keep_their_end_and_kernels_their_start() -> None:
    assert terminal.cropped("while/body/cell/MatMul:MatMul", 14) == "…MatMul:MatMul"
    assert terminal.cropped("void gemm<float, 4>(int)", 10) == "void gemm…"
    assert terminal.cropped("short", 10) == "short"


def test_hostile_names_are_printed_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    name = "[red]x[/red]\x1b[31m\n\x00<script>"
    terminal.write_table("t", ["name", ">ms"], [[name, "1.0"]], crop="name")
    printed = capsys.readouterr().out
    assert "[red]x[/red]" in printed
    assert "\x1b" not in printed
    assert "\x00" not in printed


def test_a_long_name_never_cuts_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.write_table("", ["name", ">ms"], [["k" * 5000, "123456.789"]], crop="name")
    lines = capsys.readouterr().out.splitlines()
    assert any(line.rstrip().endswith("123456.789") and "…" in line for line in lines)
    assert max(map(len, lines)) <= 120
