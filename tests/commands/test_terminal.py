"""What is printed adds up, and prints as text whatever a profile is called."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from hypothesis import given, strategies as st

from lstmprof.base.numbers import cropped
from lstmprof.commands import terminal

LEDGER = """
from lstmprof.commands import terminal
rows = [["busy", "gemm", "6.000"], ["idle", "python", "3.000"], ["idle", "sync", "0.001"]]
bars = terminal.Bars([6.0, 3.0, 0.001, None], [terminal.BLUE, terminal.ORANGE, terminal.ORANGE, ""])
terminal.write_table("a × b", ["", "part", ">ms"], [*rows, ["", "sum", "9.001"]], bars=bars)
"""
WATERFALL = """
from lstmprof.commands import terminal
bars = terminal.Bars([6.0, -3.0, None], [terminal.ORANGE, terminal.BLUE, ""])
terminal.write_table("", ["part", ">ms"], [["a", "+6"], ["b", "-3"], ["sum", "+3"]], bars=bars)
"""
KERNELS = """
from lstmprof.commands import terminal
name = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)"
heads = [">total ms", ">p95 µs", ">per step", "category", "name"]
row = ["123,456.789", "1,234.5", "1,000.0", "normalization", name]
terminal.write_table("", heads, [row], crop="name", spare=(">p95 µs", ">per step"))
"""


def on_a_terminal(program: str, columns: int = 80, **environment: str) -> str:
    """What ``program`` writes to a terminal of so many columns."""
    reads, writes = pty.openpty()
    fcntl.ioctl(writes, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    own = {**os.environ, "TERM": "xterm-256color", **environment}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=writes, stdin=writes, env=own) as running:
        os.close(writes)
        said = b"".join(iter(lambda: _read(reads), b""))
        assert running.wait() == 0
    os.close(reads)
    return said.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def in_a_pipe(program: str, **environment: str) -> str:
    own = {**os.environ, **environment}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, env=own, check=True).stdout.decode()


def plain(said: str) -> list[str]:
    """The lines without their colours and what is blank at their ends."""
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()]


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=20), st.integers(0, 3))
def test_rounded_parts_sum_to_the_rounded_whole(parts: list[int], digits: int) -> None:
    whole = sum(parts) / 1e6
    printed = terminal.parts_that_add_up([p / 1e6 for p in parts], whole, digits)
    values = [float(text.replace(",", "")) for text in printed]
    assert sum(round(v * 10**digits) for v in values) == round(whole * 10**digits)
    assert all(abs(v - p / 1e6) <= 10**-digits for v, p in zip(values, parts, strict=True))


def test_parts_have_the_commas_that_their_sum_has() -> None:
    assert terminal.parts_that_add_up([30668.3794, 1.0], 30669.3794, 3) == ["30,668.379", "1.000"]


def test_graph_nodes_keep_their_end_and_kernels_their_start() -> None:
    assert cropped("while/body/cell/MatMul:MatMul", 14) == "…MatMul:MatMul"
    assert cropped("void gemm<float, 4>(int)", 10) == "gemm<floa…"
    assert cropped("short", 10) == "short"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>)",
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, Ar…",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>"
            "(int, float, float const*)",
            "vectorized_layer_norm_kernel<float, float>",
        ),
        (
            "void at::native::<unnamed>::softmax_warp_forward<c10::Half, float, c10::Half>(float*)",
            "softmax_warp_forward<Half, float, Half>",
        ),
        (
            "_ZN2at6native58_GLOBAL__N__31_tmpxft_00008e34_00000000_11_SoftMax_cpp1_ii"
            "19cunn_SoftMaxForwardILi4EfffEEvPT2_",
            "cunn_SoftMaxForward<…>",
        ),
        (
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb1EEEvPT0_PT_S2_S2_PKS2_",
            "aiter::add_rmsnorm_quant_kernel<…>",
        ),
        (
            "torch/nn/modules/container_of_layers.py(1743): _call_impl_of_a_module",
            "…odules/container_of_layers.py(1743): _call_impl_of_a_module",
        ),
        ("_ZN" + "9" * 6000, "_ZN" + "9" * 56 + "…"),
    ],
)
def test_a_kernel_that_does_not_fit_loses_first_what_it_shares_with_others(
    name: str, shown: str
) -> None:
    assert cropped(name) == shown


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


def test_a_terminal_gets_bars_and_a_pipe_none() -> None:
    said = on_a_terminal(LEDGER)
    assert plain(said)[2:6] == [
        f"busy  gemm    6.000  {'█' * 30}",
        f"idle  python  3.000  {'█' * 15}",
        "idle  sync    0.001  ▏",
        "      sum     9.001",
    ]
    assert "\x1b[38;5" in said
    assert in_a_pipe(LEDGER).splitlines()[:3] == [
        "a × b",
        "      part       ms",
        "busy  gemm    6.000",
    ]
    assert not re.search(r"[█▏\x1b]", in_a_pipe(LEDGER))


def test_bars_of_both_signs_start_at_one_zero() -> None:
    lines = plain(on_a_terminal(WATERFALL))
    assert lines[1:4] == [f"a     +6  {' ' * 10}{'█' * 20}", f"b     -3  {'█' * 10}", "sum   +3"]


def test_no_colour_is_written_where_it_is_not_wanted() -> None:
    said = on_a_terminal(LEDGER, NO_COLOR="1")
    assert "█" in said
    assert not re.search(r"\x1b\[(3|4|9)\d", said)


def test_an_encoding_without_blocks_gets_the_nearest_signs() -> None:
    lines = plain(on_a_terminal(LEDGER, PYTHONIOENCODING="ascii"))
    assert lines[0] == "a x b"
    assert lines[2:5] == [
        "busy  gemm    6.000",
        "idle  python  3.000",
        "idle  sync    0.001",
    ]
    assert in_a_pipe(LEDGER, PYTHONIOENCODING="ascii").startswith("a x b\n")


def test_an_encoding_that_needs_more_signs_gets_more_room() -> None:
    program = (
        "from lstmprof.commands import terminal; cells = ['1.0 ± 0.1 → 2', '3.0 ± 0.1 → 4'] * 4;"
        "terminal.write_table('', ['>mean ± std'] * 8, [cells])"
    )
    for columns in (120, 60):
        row = plain(on_a_terminal(program, columns=columns, PYTHONIOENCODING="ascii"))[1]
        assert row.split("  ") == ["1.0 +- 0.1 -> 2", "3.0 +- 0.1 -> 4"] * 4


def test_csv_is_utf_8_whatever_the_encoding_of_the_output() -> None:
    program = (
        "from lstmprof.commands import terminal; terminal.write_csv([{'name': 'αβ'}], ['name'])"
    )
    assert in_a_pipe(program, PYTHONIOENCODING="ascii") == "name\r\nαβ\r\n"


def test_several_texts_in_a_csv_cell_are_joined_and_the_rest_is_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"none": (), "texts": ("a, b", "c"), "numbers": [1, 2], "struct": {"x": None, "ä": "1"}}
    terminal.write_csv([row], list(row))
    (read,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (read["none"], read["texts"]) == ("", "a, b; c")
    assert {name: json.loads(read[name]) for name in ("numbers", "struct")} == {
        "numbers": [1, 2],
        "struct": {"x": None, "ä": "1"},
    }


def test_a_narrow_terminal_has_no_bars_but_every_number() -> None:
    lines = plain(on_a_terminal(LEDGER, columns=24))
    assert lines[2:4] == ["busy  gemm    6.000", "idle  python  3.000"]
    (row,) = [line for line in plain(on_a_terminal(KERNELS, columns=40)) if "123," in line]
    assert row.startswith("123,456.789  normalization  vector")


@pytest.mark.parametrize(("columns", "hidden"), [(72, ["p95 µs"]), (60, ["p95 µs", "per step"])])
def test_columns_give_way_to_names_and_are_told(columns: int, hidden: list[str]) -> None:
    lines = plain(on_a_terminal(KERNELS, columns=columns))
    assert f"(columns that do not fit this width: {', '.join(hidden)})" in " ".join(lines)
    assert "vectorized_layer_norm" in lines[1]
    assert "p95 µs" in in_a_pipe(KERNELS)


def test_a_terminal_gets_long_lines_broken_between_words() -> None:
    program = (
        "from lstmprof.commands import terminal; terminal.write_line('eleven words of eight ' * 9)"
    )
    lines = plain(on_a_terminal(program, columns=40))
    assert max(map(len, lines)) <= 40
    assert {word for line in lines for word in line.split()} == {"eleven", "words", "of", "eight"}
    assert len(in_a_pipe(program).splitlines()) == 1
