"""The table of modules by hand, under a drawn timeline."""

from __future__ import annotations

from typing import Any

from events.rows import Row, row, table

from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

HOST, ENGINE = {"pid": 1, "tid": 1}, {"pid": 1, "tid": 2}
GPU = {"device": 0, "stream": 7}


def modules(rows: list[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    events = annotated(table(rows), captured=False)
    made = TABLES["modules"].of(events, windows(events, captured=False)).to_pylist()
    return {(r["sort"], r["name"]): r for r in made}


#                     0  2    10    20  30    40  50      100   120
# train.py(3): step   [---------------------------------)
# nn.Module: Net_0       [-----------------------)
# Net.py(9): forward       [---------------------)          5…48
# nn.Module: LSTM_0           [---------)                  10…30
# aten::mm                      [--)                       12…20
# launch                         14-15 ─▶ kernel 100…107
# aten::add                                [--)            40…45
# launch                                    41-42 ─▶ kernel 110…113
# MmBackward0, engine                                      60…70
# launch                                    62-63 ─▶ kernel 120…130
ROWS = [
    row("python", "train.py(3): step", 0, 50, **HOST),
    row("python", "nn.Module: Net_0", 2, 48, **HOST),
    row("python", "Net.py(9): forward", 5, 48, **HOST),
    row("python", "nn.Module: LSTM_0", 10, 30, **HOST),
    row("op", "aten::mm", 12, 20, **HOST, sequence_number=7),
    row("runtime", "cudaLaunchKernel", 14, 15, **HOST, correlation_id=1),
    row("op", "aten::add", 40, 45, **HOST),
    row("runtime", "cudaLaunchKernel", 41, 42, **HOST, correlation_id=2),
    row("op", "MmBackward0", 60, 70, **ENGINE, sequence_number=7, forward_thread=1),
    row("runtime", "cudaLaunchKernel", 62, 63, **ENGINE, correlation_id=3),
    row("kernel", "sgemm", 100, 107, **GPU, correlation_id=1),
    row("kernel", "add", 110, 113, **GPU, correlation_id=2),
    row("kernel", "sgemm", 120, 130, **GPU, correlation_id=3),
]
NUMBERS = ("host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns")
BACKWARD = ("backward_host_ns", "backward_device_ns")


def numbers(made: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(made[name] for name in names)


def test_a_module_has_what_was_launched_in_it_and_the_backward_pass_of_it() -> None:
    made = modules(ROWS)
    assert made.keys() == {
        ("module", "Net_0"),
        ("module", "LSTM_0"),
        ("python", "train.py(3): step"),
        ("python", "Net.py(9): forward"),
    }
    net, lstm = made["module", "Net_0"], made["module", "LSTM_0"]
    assert numbers(net, NUMBERS) == (46, 26, 10, 3)
    assert numbers(lstm, NUMBERS) == (20, 20, 7, 7)
    assert numbers(net, BACKWARD) == numbers(lstm, BACKWARD) == (10, 10)


def test_a_line_is_not_parted_by_the_modules_in_it() -> None:
    made = modules(ROWS)
    assert numbers(made["python", "train.py(3): step"], NUMBERS) == (50, 7, 10, 0)
    assert numbers(made["python", "Net.py(9): forward"], NUMBERS) == (43, 43, 10, 10)


def test_a_module_inside_itself_is_not_added_again() -> None:
    inner = row("python", "nn.Module: Net_0", 32, 39, **HOST)
    made = modules([*ROWS, inner])["module", "Net_0"]
    assert (made["count"], made["host_total_ns"], made["host_self_ns"]) == (2, 46, 26)


def test_without_devices_or_links_nothing_is_said_of_them() -> None:
    made = modules([row("range", "encoder", 0, 9, **HOST), row("op", "aten::mm", 1, 5, **HOST)])
    (encoder,) = made.values()
    assert (encoder["sort"], encoder["host_self_ns"]) == ("range", 9)
    assert [encoder[name] for name in (*NUMBERS[2:], *BACKWARD)] == [None] * 4
