"""What is printed cannot steer a terminal, and what cannot be printed is one line."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from lstmprof.base import streams
from lstmprof.commands import terminal

#: Escape, line ends, backspace, DEL, C1 (CSI), overrides, isolates, line separators, a surrogate.
STEERING = "\x1b\r\n\t\b\x00\x7f\x85\x9b\u202e\u2066\u200f\u061c\u2028\u2029\ufeff\udcff\U000e0041"
HOSTILE = f"a\x1b]0;t\x07\x9b2J\nlstmprof: error: forged{STEERING}z"


def printed(text: str, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    stream = streams.Stream(file, "a file")
    stream.write(text)
    stream.flush()
    return file.buffer.getvalue().decode(encoding)


def test_no_control_character_passes_but_the_end_of_a_line() -> None:
    said = printed(HOSTILE + "\n")
    assert said.endswith("z\n")
    assert not streams.CONTROL.search(said.replace("\r\n", ""))
    assert printed("ä – µ × 日本 é\n") == "ä – µ × 日本 é\n"
    assert printed("a,b\r\nc\rd") == "a,b\r\nc d"


def test_colours_pass_where_they_are_our_own() -> None:
    file = io.StringIO()
    streams.Stream(file, "a file").styled.write("\x1b[1;38;5;3mx\x1b[0m\x1b[2J\x1b]0;t")
    assert file.getvalue() == "\x1b[1;38;5;3mx\x1b[0m [2J ]0;t"


def test_a_sign_that_the_encoding_lacks_is_replaced() -> None:
    assert printed("a → b\n", "ascii") == "a ? b\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "--format", "json"], ["--help"], ["list", "--help"]]
)
def test_a_full_output_is_one_line(arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [sys.executable, *(["-u"] if unbuffered else []), "-m", "lstmprof", *arguments]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 1
    assert line.startswith("lstmprof: error: standard output cannot be written (No space left")


def test_a_closed_output_is_one_line() -> None:
    command = f"{sys.executable} -m lstmprof list >&-"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("lstmprof: error: standard output is closed; redirect it")
    assert len(ran.stderr.splitlines()) == 1


def test_what_cannot_be_told_on_standard_error_costs_nothing() -> None:
    for closed in ("2>&-", "2>/dev/full", "2>&- <&-"):
        command = f"{sys.executable} -m lstmprof list workloads {closed}"
        ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert (ran.returncode, "1x320-ce-short" in ran.stdout) == (0, True)


def test_a_reader_that_has_gone_is_no_error() -> None:
    command = f"{sys.executable} -m lstmprof list --format json | head -c 1"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("{", "")


def test_json_has_escapes_for_what_steers_a_terminal() -> None:
    file = io.StringIO()
    terminal.write_json({HOSTILE: [HOSTILE, "ä – 日本"]}, file)
    assert not streams.CONTROL.search(file.getvalue())
    assert json.loads(file.getvalue()) == {HOSTILE: [HOSTILE, "ä – 日本"]}
    assert "ä – 日本" in file.getvalue()


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ('=HYPERLINK("http://x")', '"\'=HYPERLINK(""http://x"")"'),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(1)", "'@SUM(1)"),
        ("＝1", "'＝1"),
        ("\t=1", "'=1"),
        ("\r=1", "'=1"),
        ("a\n=1", "a =1"),
        ("\x1b[2J", "[2J"),
        (["=1", "b"], "'=1; b"),
        ({"a": "=1"}, '"{""a"": ""=1""}"'),
        (-1.5, "-1.5"),
        (-7, "-7"),
        ("-1.5e-7", "-1.5e-7"),
        ("+3", "+3"),
        (None, '""'),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_of_csv_is_run_by_a_spreadsheet(value: object, cell: str) -> None:
    file = io.StringIO()
    terminal.write_csv([{"=n": value}], ["=n"], file)
    assert file.getvalue() == f"'=n\r\n{cell}\r\n"
