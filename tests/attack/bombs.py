"""Small files that need much memory or time: ``python -m attack.bombs``.

::

    a family, a size ─▶ a file ─ lstmprof in its own process ─▶ peak memory, CPU time

Each is read or refused within 1 GiB plus 4 times its size of memory, and 5 s of CPU per MB (and 5 s
for the start of Python). The families are seeded by the size: twice the size, about twice the file.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from attack.seeds import nsys, run_files

FREE_BYTES, BYTES_PER_BYTE = 2**30, 4
FREE_S, S_PER_MB = 5.0, 5.0
_HEAD = {"schemaVersion": 1, "distributedInfo": {"rank": 0}}
Make = Callable[[int, Path], None]


def _op(name: str, ts: float, dur: float, **more: object) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "pid": 1,
        "tid": 1,
        "name": name,
        "ts": ts,
        "dur": dur,
    } | more


def _kineto(events: list[dict[str, object]]) -> bytes:
    return json.dumps({**_HEAD, "traceEvents": events}).encode()


def _varint(value: int) -> bytes:
    low = bytes([value & 127 | (128 if value > 127 else 0)])
    return low if value < 128 else low + _varint(value >> 7)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _floats(size: int, file: Path) -> None:
    pad = bytes(Random(size).choices(b"abcdefgh01234567", k=size // 40))
    file.write_bytes(gzip.compress(b'{"p":"%b","a":[%b1.0]}' % (pad, b"1.0," * (size // 4))))


def _objects(size: int, file: Path) -> None:
    file.write_bytes(gzip.compress(b'{"traceEvents":[%b{}]}' % (b"{}," * (size // 3))))


def _equal_events(size: int, file: Path) -> None:
    event = json.dumps(_op("aten::mm", 1, 1)).encode()
    inside = b",".join([event] * (size // len(event)))
    file.write_bytes(gzip.compress(b'{"schemaVersion":1,"traceEvents":[%b]}' % inside))


def _nested_ops(size: int, file: Path) -> None:
    count = size // 120
    file.write_bytes(_kineto([_op(f"aten::op{i % 7}", i, 3 * count - 2 * i) for i in range(count)]))


def _long_names(size: int, file: Path) -> None:
    names = ("void " + "a<" * 15_000 + ">" * 15_000 + str(i) for i in range(size // 45_000 + 1))
    file.write_bytes(_kineto([_op(name, 9 * i, 4) for i, name in enumerate(names)]))


def _deep_arguments(size: int, file: Path) -> None:
    deep = "[" * 900 + "]" * 900
    events = [_op("aten::mm", i, 1, args={"Input Dims": deep}) for i in range(size // 1900 + 1)]
    file.write_bytes(_kineto(events).replace(f'"{deep}"'.encode(), deep.encode()))


def _threads(size: int, file: Path) -> None:
    file.write_bytes(_kineto([_op("aten::mm", i, 1, tid=i) for i in range(size // 95)]))


def _pickled_lists(size: int, file: Path) -> None:
    file.write_bytes(gzip.compress(b"\x80\x04" + b"]" * size))


def _zeros(size: int, file: Path) -> None:
    file.write_bytes(gzip.compress(bytes(20 * size)))


def _xplane(size: int, event: bytes, file: Path) -> None:
    line = _number(1, 1) + _message(2, b"python") + event * (size // len(event))
    metadata = _message(4, _number(1, 1) + _message(2, _number(1, 1) + _message(2, b"a")))
    plane = _number(1, 1) + _message(2, b"/host:CPU") + _message(3, line) + metadata
    file.write_bytes(gzip.compress(_message(1, plane)))


def _xplane_events(size: int, file: Path) -> None:
    _xplane(size, _message(4, _number(1, 1) + _number(3, 127)), file)


def _xplane_stats(size: int, file: Path) -> None:
    stats = _message(4, _number(1, 1) + _number(2, 7)) * 400
    _xplane(size, _message(4, _number(1, 1) + _number(3, 127) + stats), file)


def _perfetto(size: int, file: Path) -> None:
    place = _message(60, _number(1, 1) + _message(2, b"x") + _message(4, _number(1, 1)))
    slices = b"".join(
        _message(1, _number(8, time) + _message(11, _number(9, kind) + _number(11, 1)))
        for time, kind in ((1, 1), (2, 2))
    )
    packed = zlib.compress(slices * (size // len(slices)), 9)
    file.write_bytes(_message(1, place) + _message(1, _message(50, packed)))


def _endless_view(size: int, file: Path) -> None:
    """The kernels are a view that counts to ``size`` times 1,000."""
    file.write_bytes(nsys()[0])
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    with sqlite3.connect(file) as database:
        database.execute(f"ALTER TABLE {table} RENAME TO one")
        database.execute(
            f"CREATE VIEW {table} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
            f" LIMIT {1000 * size}) SELECT one.* FROM one, n"
        )
    database.close()


def _generated_column(size: int, file: Path) -> None:
    file.write_bytes(nsys()[0])
    with sqlite3.connect(file) as database:
        database.execute(f"CREATE TABLE s (id, value AS (hex(zeroblob({size}))))")
        database.executemany("INSERT INTO s (id) VALUES (?)", ([n] for n in range(2000)))
        database.execute("DROP TABLE StringIds")
        database.execute("ALTER TABLE s RENAME TO StringIds")
    database.close()


def _run(size: int, place: Path, grow: Callable[[pa.Table], pa.Table]) -> None:
    place.mkdir()
    for name, content in run_files().items():
        (place / name).write_bytes(content)
    table = grow(pq.read_table(place / "events.parquet"))
    pq.write_table(table, place / "events.parquet", compression="zstd")


def _run_of_equal_rows(size: int, place: Path) -> None:
    _run(size, place, lambda table: table.take(pa.nulls(3 * size, pa.int64()).fill_null(0)))


def _run_of_long_texts(size: int, place: Path) -> None:
    def grow(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("shapes")
        texts = pa.array(["[" + "1," * (8 * size) + "1]"] * len(table))
        return table.set_column(at, table.schema.field(at), texts.cast(table.schema.field(at).type))

    _run(size, place, grow)


@dataclass(frozen=True)
class Bomb:
    """A family: ``make`` writes the file of a size; ``commands`` are given it."""

    name: str
    make: Make
    commands: Sequence[Sequence[str]] = (("breakdown",),)


_ALL = (("breakdown",), ("diagnose",), ("report", "-o", "{out}/page.html", "--force"))
_SPEEDSCOPE = ("export", "--speedscope", "{out}/flame.json", "--force")
BOMBS = (
    Bomb("JSON: numbers, gzipped", _floats),
    Bomb("JSON: empty objects, gzipped", _objects),
    Bomb("JSON: equal events, gzipped", _equal_events),
    Bomb("JSON: nested ops", _nested_ops, (*_ALL, _SPEEDSCOPE)),
    Bomb("JSON: long names", _long_names, _ALL),
    Bomb("JSON: deep arguments", _deep_arguments, _ALL),
    Bomb("JSON: many threads", _threads, _ALL),
    Bomb("pickle: empty lists, gzipped", _pickled_lists),
    Bomb("gzip: zeros", _zeros),
    Bomb("XPlane: equal events, gzipped", _xplane_events),
    Bomb("XPlane: events of many stats, gzipped", _xplane_stats),
    Bomb("Perfetto: compressed packets", _perfetto),
    Bomb("SQLite: a view of many rows", _endless_view),
    Bomb("SQLite: a generated column", _generated_column),
    Bomb("run: equal rows", _run_of_equal_rows, _ALL),
    Bomb("run: long texts", _run_of_long_texts, _ALL),
)


@dataclass(frozen=True)
class Spent:
    """What a command took for a file of ``size`` bytes, and how it ended."""

    bomb: str
    command: str
    size: int
    peak_bytes: int
    cpu_s: float
    code: int

    @property
    def fault(self) -> str:
        """Which bound was broken; empty if none was."""
        most_bytes = FREE_BYTES + BYTES_PER_BYTE * self.size
        most_s = FREE_S + S_PER_MB * self.size / 1e6
        faults = []
        if self.peak_bytes > most_bytes:
            faults.append(f"{self.peak_bytes >> 20} MiB of memory, not {most_bytes >> 20}")
        if self.cpu_s > most_s:
            faults.append(f"{self.cpu_s:.1f} s of CPU, not {most_s:.1f}")
        if self.code not in (0, 1):
            faults.append(f"exit status {self.code}")
        return "; ".join(faults)

    @property
    def row(self) -> str:
        """A row of the table in docs/robustness.md."""
        end = "refused" if self.code else "read"
        used = f"{self.peak_bytes / 2**30:.2f} GiB | {self.cpu_s:.1f} s"
        return f"| {self.bomb} | {self.command} | {self.size / 1e6:.2f} MB | {used} | {end} |"


#: Runs a command with its output on the standard error, and prints its exit status, CPU time in
#: seconds and the peak of its memory in bytes. It imports little, so its own peak is small.
_MEASURE = """
import os, sys
to_errors = [(os.POSIX_SPAWN_DUP2, 2, 1)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=to_errors)
_, status, used = os.wait4(child, 0)
cpu_s = used.ru_utime + used.ru_stime
print([os.waitstatus_to_exitcode(status), cpu_s, 1024 * used.ru_maxrss])
"""


def spent(bomb: Bomb, size: int, folder: Path, cache: Path) -> Iterator[Spent]:
    """Yield what each command takes for the file of ``size``; ``folder`` is empty at first.

    Other processes make the file and start the commands, because the peak of a process's memory
    counts for those it starts.
    """
    place = folder / "bomb"
    maker = multiprocessing.get_context("spawn").Process(target=bomb.make, args=(size, place))
    maker.start()
    maker.join()
    assert maker.exitcode == 0
    files = [place, *place.iterdir()] if place.is_dir() else [place]
    length = sum(file.stat().st_size for file in files if file.is_file())
    environment = {**os.environ, "LSTMPROF_CACHE": str(cache), "TMPDIR": str(folder)}
    for command, *options in bomb.commands:
        words = [sys.executable, "-m", "lstmprof", command, str(place)]
        words += [option.format(out=folder) for option in options]
        with (folder / "output").open("wb") as output:
            measured = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _MEASURE, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                check=True,
            )
        code, cpu_s, peak_bytes = json.loads(measured.stdout)
        assert b"a bug in lstmprof" not in (folder / "output").read_bytes()
        yield Spent(bomb.name, command, length, peak_bytes, cpu_s, code)


def main() -> int:
    """Print a table of all families; return 1 if one broke a bound."""
    from lstmprof.report.page import vega  # imports much, and each bomb is made in a new process

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2**20, 2**23, 2**25])
    parser.add_argument("--only", help="a part of the families' names", default="")
    options = parser.parse_args()
    broken = 0
    print("| Family | Command | File | Memory | CPU | End |\n|---|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["LSTMPROF_CACHE"] = cache
        vega()  # bundled once for each version of it
        for bomb, size in itertools.product(BOMBS, options.sizes):
            if options.only in bomb.name:
                with tempfile.TemporaryDirectory() as folder:
                    for each in spent(bomb, size, Path(folder), Path(cache)):
                        print(each.row, each.fault and f"BROKEN: {each.fault}", flush=True)
                        broken += bool(each.fault)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
