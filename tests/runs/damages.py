"""Runs damaged on purpose, from a seed: what strangers, old disks and bad luck make of a directory.

::

    damaged(run, place, seed) ─▶ a copy of ``run`` at ``place``, damaged; in words what was done

The same seed does the same damage to the same run. ``DAMAGES`` are the ways, and seeds take turns
among them. Some leave a run that is sound (a column of another width, a number that is strange and
allowed): what reads it may accept it or refuse it in one line, and may never raise or hang.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EVENTS, TIMINGS, RECORD = "events.parquet", "timings.parquet", "run.json"
TABLES = (EVENTS, TIMINGS)
#: Columns of the events table that name another row.
LINKS = ("parent_id", "launch_id", "op_id", "forward_id")
#: What may stand where a run.json or a column has something else.
STRANGE = (
    *(None, True, "", "x", "\x1b[31mred\n", "\ud800", -1, 0, 2**31, 2**63, -(2**63), 10**300),
    *(1e308, -0.5, [], {}, [[]], {"a": {"b": [None]}}, ["x"] * 50, {"name": 7}, [None]),
)
#: Of an integer of 64 bits, what computations trip over.
NUMBERS = (-1, -(2**63), 2**63 - 1, 2**62, 2**31, -7, 10**15)


def damaged(run: Path, place: Path, seed: int) -> str:
    """Copy ``run`` to ``place`` and damage the copy; what was done, to the word."""
    shutil.copytree(run, place, ignore=shutil.ignore_patterns("profile"))
    random = Random(seed)
    damage = DAMAGES[seed % len(DAMAGES)]
    return f"{damage.__name__}: {damage(place, random)}"


def flip_bytes(run: Path, random: Random) -> str:
    """Change some bytes of a file."""
    path = _file(run, random)
    content = bytearray(path.read_bytes())
    places = [random.randrange(len(content)) for _ in range(random.choice((1, 1, 4, 64)))]
    for place in places:
        content[place] = random.randrange(256)
    path.write_bytes(content)
    return f"{path.name} at {places[:4]}"


def flip_footer(run: Path, random: Random) -> str:
    """Change some bytes where Parquet says what the file holds."""
    path = run / random.choice(TABLES)
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    places = [len(content) - 8 - random.randrange(length) for _ in range(random.choice((1, 2, 8)))]
    for place in places:
        content[place] = random.randrange(256)
    path.write_bytes(content)
    return f"{path.name} at {places}"


def truncate(run: Path, random: Random) -> str:
    """Cut a file short."""
    path = _file(run, random)
    length = random.choice((0, 1, 4, random.randrange(path.stat().st_size)))
    os.truncate(path, length)
    return f"{path.name} to {length} bytes"


def lengthen(run: Path, random: Random) -> str:
    """Write more behind a file's end."""
    path = _file(run, random)
    more = random.choice((b"\0" * 4096, b"PAR1", b"{}", b"]"))
    path.write_bytes(path.read_bytes() + more)
    return f"{path.name} and {more[:8]!r}"


def remove(run: Path, random: Random) -> str:
    """Delete a file."""
    path = _file(run, random)
    path.unlink()
    return path.name


def swap_files(run: Path, random: Random) -> str:
    """Put one file in place of another."""
    one, other = random.sample((EVENTS, TIMINGS, RECORD), 2)
    shutil.copy(run / one, run / other)
    return f"{one} as {other}"


def put_folder(run: Path, random: Random) -> str:
    """Put a folder in a file's place."""
    path = _file(run, random)
    path.unlink()
    path.mkdir()
    return path.name


def put_link(run: Path, random: Random) -> str:
    """Put a link in a file's place: to itself, to nothing, or to a device."""
    path = _file(run, random)
    target = random.choice((path.name, "nowhere", "/dev/zero", "/dev/null", "."))
    path.unlink()
    path.symlink_to(target)
    return f"{path.name} to {target}"


def put_pipe(run: Path, random: Random) -> str:
    """Put a named pipe or a socket in a file's place."""
    path = _file(run, random)
    path.unlink()
    if random.random() < 0.7 or len(os.fsencode(path)) > 100:
        os.mkfifo(path)
        return f"{path.name}, a pipe"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return f"{path.name}, a socket"


def set_field(run: Path, random: Random) -> str:
    """Put what is strange into a field of run.json."""
    document = json.loads((run / RECORD).read_text())
    holder, name = random.choice(list(_places(document)))
    holder[name] = random.choice(STRANGE)
    _write_json(run, document)
    return f"{name} = {holder[name]!r:.40}"


def swap_fields(run: Path, random: Random) -> str:
    """Exchange the values of two fields of run.json."""
    document = json.loads((run / RECORD).read_text())
    (a, x), (b, y) = random.sample(list(_places(document)), 2)
    before = json.dumps(document)
    a[x], b[y] = json.loads(json.dumps(b[y])), json.loads(json.dumps(a[x]))
    try:
        _write_json(run, document)
    except ValueError:  # one held the other
        (run / RECORD).write_text(before)
    return f"{x} and {y}"


def drop_field(run: Path, random: Random) -> str:
    """Take a field out of run.json, or all but one."""
    document = json.loads((run / RECORD).read_text())
    holder, name = random.choice(list(_places(document)))
    if random.random() < 0.2:
        document = {name: holder[name]}
    elif isinstance(holder, dict):
        del holder[name]
    else:
        holder.clear()
    _write_json(run, document)
    return str(name)


def empty_lists(run: Path, random: Random) -> str:
    """Shorten or lengthen every list of run.json, which others are counted by."""
    document = json.loads((run / RECORD).read_text())
    keep = random.choice((0, 1, 2, -1))
    for holder, name in list(_places(document)):
        value = holder[name] if not isinstance(holder, list) or name < len(holder) else None
        if isinstance(value, list):
            holder[name] = value[:keep] if keep >= 0 else value * 3
    _write_json(run, document)
    return f"{keep} of each"


def nest(run: Path, random: Random) -> str:
    """Nest run.json without end."""
    opening = random.choice(("[", '{"a":', '{"profile_metadata":', '{"later":['))
    depth = random.choice((100, 900, 20_000, 200_000))
    closing = random.choice(("", "]" * depth))
    (run / RECORD).write_text(opening * depth + closing)
    return f"{opening} {depth} times"


def nest_within(run: Path, random: Random) -> str:
    """Nest one value of run.json so deep that JSON can still read it."""
    document = json.loads((run / RECORD).read_text())
    value: Any = {}
    for _ in range(random.choice((40, 200, 600))):
        value = [value] if random.random() < 0.5 else {"a": value}
    document[random.choice(("profile_metadata", "versions", "later", "workload"))] = value
    (run / RECORD).write_text(json.dumps(document))
    return "deep"


def no_text(run: Path, random: Random) -> str:
    """Put bytes that are no UTF-8, or what a terminal obeys, into run.json."""
    text = (run / RECORD).read_bytes()
    at = random.randrange(len(text))
    bytes_ = random.choice((b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\0", b"\x1b]0;x\x07"))
    (run / RECORD).write_bytes(text[:at] + bytes_ + text[at:])
    return f"{bytes_!r} at {at}"


def huge_digits(run: Path, random: Random) -> str:
    """Give a number of run.json thousands of digits."""
    name = random.choice(("seed", "base_ns", "threads", "timing_wall_ns", "later", "loss_first"))
    number = random.choice(("9" * 5000, "1e999", "-" + "9" * 400 + ".5", "1e-999999"))
    text = (run / RECORD).read_text().rstrip().removesuffix("}").rstrip().removesuffix(",")
    (run / RECORD).write_text(f'{text}, "{name}": {number}}}')
    return f"{name} = {number[:10]}"


def set_version(run: Path, random: Random) -> str:
    """Say another schema version, in run.json or in a table."""
    version = random.choice((0, 1, 5, 99, -1, 2**70, "4", "x", None, [4], 4.0, True))
    if random.random() < 0.5:
        document = json.loads((run / RECORD).read_text())
        _write_json(run, {**document, "schema_version": version})
        return f"{version!r} in {RECORD}"
    name = random.choice(TABLES)
    table = pq.read_table(run / name)
    written = {"lstmprof.events_schema": str(version)} if version is not None else {}
    pq.write_table(table.replace_schema_metadata(written), run / name)
    return f"{version!r} in {name}"


def drop_column(run: Path, random: Random) -> str:
    """Take a column out of a table."""
    table, name = _table(run, random)
    column = random.choice(table.schema.names)
    pq.write_table(table.drop_columns([column]), run / name)
    return f"{column} of {name}"


def rename_column(run: Path, random: Random) -> str:
    """Call a column otherwise, or as another is called."""
    table, name = _table(run, random)
    names = list(table.schema.names)
    at = random.randrange(len(names))
    before, names[at] = names[at], random.choice(("", "x", names[at].upper(), names[at - 1], "a.b"))
    pq.write_table(table.rename_columns(names), run / name)
    return f"{before} of {name} as {names[at]!r}"


def retype_column(run: Path, random: Random) -> str:
    """Give a column another type, its values as text, numbers, times or lists."""
    table, name = _table(run, random)
    at = random.randrange(table.num_columns)
    type_ = random.choice(
        (
            *(pa.string(), pa.float64(), pa.bool_(), pa.int8(), pa.uint64(), pa.binary()),
            *(pa.timestamp("ns"), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.null()),
            *(pa.decimal128(38, 0), pa.dictionary(pa.int8(), pa.string()), pa.large_string()),
        )
    )
    values = _as_type(table.column(at), type_)
    column = table.schema.names[at]
    pq.write_table(table.set_column(at, column, values), run / name)
    return f"{column} of {name} as {type_}"


def shuffle_columns(run: Path, random: Random) -> str:
    """Put columns in another order, or one twice."""
    table, name = _table(run, random)
    names = random.sample(table.schema.names, table.num_columns)
    if random.random() < 0.3:
        table = table.append_column(names[0], table.column(names[0]))
        pq.write_table(table, run / name)
        return f"{names[0]} of {name} twice"
    pq.write_table(table.select(names), run / name)
    return f"{names[:3]} first of {name}"


def set_number(run: Path, random: Random) -> str:
    """Put a number that cannot be into a column, in one row, some or all."""
    table, name = _table(run, random)
    names = [f.name for f in table.schema if pa.types.is_integer(f.type)]
    column, number = random.choice(names), random.choice(NUMBERS)
    _write_values(run, name, table, column, _rows(table, random), lambda row: number)
    return f"{column} of {name} = {number}"


def set_null(run: Path, random: Random) -> str:
    """Put nulls into a column, which may have none."""
    table, name = _table(run, random)
    column = random.choice(table.schema.names)
    _write_values(run, name, table, column, _rows(table, random), lambda row: None)
    return f"{column} of {name}"


def set_text(run: Path, random: Random) -> str:
    """Put a text that nobody knows into a column of texts of the events."""
    table = pq.read_table(run / EVENTS)
    names = [f.name for f in table.schema if pa.types.is_dictionary(f.type)]
    column = random.choice(names)
    texts = ("", "x", "\x1b[2J", "[[", '{"a": 1}', "[[1e999]]", "x" * 100_000, "=1+1", "[[-5, 0]]")
    text = random.choice((*texts, "ProfilerStep#" + "9" * 5000, "[" * 50_000))
    _write_values(run, EVENTS, table, column, _rows(table, random), lambda row: text)
    return f"{column} = {text[:20]!r}"


def break_text(run: Path, random: Random) -> str:
    """Put bytes that are no UTF-8 into a column of texts of the events."""
    table = pq.read_table(run / EVENTS)
    names = [f.name for f in table.schema if pa.types.is_dictionary(f.type)]
    column, rows = random.choice(names), _rows(table, random)
    texts = table.column(column).cast(pa.string()).to_pylist()
    encoded = [None if text is None else text.encode() for text in texts]
    for row in rows:
        encoded[row] = b"\xff\xfe" + (encoded[row] or b"a")
    binary = pa.array(encoded, pa.binary())
    broken = pa.StringArray.from_buffers(len(binary), *binary.buffers()[1:], binary.buffers()[0])
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, broken.dictionary_encode()), run / EVENTS)
    return f"{column} in rows {rows[:5]}"


def link_out(run: Path, random: Random) -> str:
    """Link events to ones that are not there."""
    table = pq.read_table(run / EVENTS)
    column = random.choice(LINKS)
    number = random.choice((-1, -5, len(table), len(table) + 1, 2**31, 2**62, -(2**63)))
    _write_values(run, EVENTS, table, column, _rows(table, random), lambda row: number)
    return f"{column} = {number}"


def cycle(run: Path, random: Random) -> str:
    """Make events their own ancestors: one, two in a ring, or all of them."""
    table = pq.read_table(run / EVENTS)
    count, column = len(table), random.choice(("parent_id", *LINKS))
    start, size = random.randrange(count), random.choice((1, 2, 3, min(50, count), count))
    ring = [(start + i) % count for i in range(size)]
    following = dict(zip(ring, [*ring[1:], ring[0]], strict=True))
    _write_values(run, EVENTS, table, column, ring, following.__getitem__)
    return f"{column} of {size} rows from {start}"


def renumber(run: Path, random: Random) -> str:
    """Number events twice, backwards, from another number on, or shuffle the rows."""
    table = pq.read_table(run / EVENTS)
    count = len(table)
    how = random.choice(("twice", "backwards", "offset", "shuffled", "same"))
    if how == "shuffled":
        pq.write_table(table.take(pa.array(random.sample(range(count), count))), run / EVENTS)
        return how
    numbers: dict[str, Callable[[int], int]] = {
        "twice": lambda row: row // 2,
        "backwards": lambda row: count - 1 - row,
        "offset": lambda row: row + 10**9,
        "same": lambda row: 3,
    }
    _write_values(run, EVENTS, table, "event_id", range(count), numbers[how])
    return how


def far_times(run: Path, random: Random) -> str:
    """Put events so far away, or make them so long, that sums overflow."""
    table = pq.read_table(run / EVENTS)
    column = random.choice(("start_ns", "dur_ns"))
    number = random.choice((2**63 - 1, 2**62, -(2**62), -(2**63), 10**18, -1))
    rows = _rows(table, random)
    _write_values(run, EVENTS, table, column, rows, lambda row: number)
    return f"{column} = {number} in {len(rows)}"


def no_rows(run: Path, random: Random) -> str:
    """Take all rows of a table, or every second, without telling the others."""
    table, name = _table(run, random)
    kept = [] if random.random() < 0.5 else list(range(0, len(table), 2))
    pq.write_table(table.take(pa.array(kept, pa.int64())), run / name)
    return f"{len(kept)} left of {name}"


def many_rows(run: Path, random: Random) -> str:
    """Repeat the rows of a table, or one of them, in as many row groups."""
    table, name = _table(run, random)
    times = random.choice((2, 7))
    repeated = pa.concat_tables([table] * times).combine_chunks()
    pq.write_table(repeated, run / name, row_group_size=max(1, len(table) // 3))
    return f"{name}, {times} times"


DAMAGES: tuple[Callable[[Path, Random], str], ...] = (
    *(flip_bytes, flip_footer, truncate, lengthen, remove, swap_files, put_folder, put_link),
    *(put_pipe, set_field, swap_fields, drop_field, empty_lists, nest, nest_within, no_text),
    *(huge_digits, set_version, drop_column, rename_column, retype_column, shuffle_columns),
    *(
        set_number,
        set_null,
        set_text,
        break_text,
        link_out,
        cycle,
        renumber,
        far_times,
        no_rows,
        many_rows,
    ),
)


def _file(run: Path, random: Random) -> Path:
    """A file of the run, run.json as often as the tables together."""
    name = random.choice((RECORD, RECORD, *TABLES))
    return run / name if (run / name).exists() else run / RECORD


def _table(run: Path, random: Random) -> tuple[pa.Table, str]:
    name = random.choice((EVENTS, EVENTS, *TABLES))
    name = name if (run / name).exists() else EVENTS
    return pq.read_table(run / name), name


def _rows(table: pa.Table, random: Random) -> list[int]:
    """One row, some or all."""
    count = len(table)
    return sorted(random.sample(range(count), min(count, random.choice((1, 1, 5, count)))))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (holder, name or index) of a JSON document, depth first."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    places: list[tuple[Any, Any]] = []
    for name, inner in list(pairs):
        places.append((value, name))
        places += _places(inner) if isinstance(inner, (dict, list)) else []
    return places


def _write_json(run: Path, document: Any) -> None:
    (run / RECORD).write_text(json.dumps(document))


def _write_values(
    run: Path, name: str, table: pa.Table, column: str, rows: Any, value: Callable[[int], Any]
) -> None:
    """Write ``table`` with another value in these rows of ``column``; its type stays."""
    at = table.schema.get_field_index(column)
    field = table.schema.field(at)
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    values = table.column(at).cast(plain).to_pylist()
    for row in rows:
        values[row] = value(row)
    nullable = pa.field(column, plain)
    try:
        array = pa.array(values, plain)
    except (pa.ArrowInvalid, OverflowError):  # an integer in a column of flags
        array = pa.array([None if v is None else bool(v) for v in values], plain)
    if pa.types.is_dictionary(field.type):
        array = array.dictionary_encode()
        nullable = pa.field(column, array.type)
    pq.write_table(table.set_column(at, nullable, array), run / name)


def _as_type(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    """``column`` as ``type_``; all null where there is no way."""
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(column), type_)
