"""Read, write, group and tabulate the records of run.json (``fields.RunInfo``)."""

import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from lstmprof.base import names
from lstmprof.base.errors import RunError
from lstmprof.events.schema import SCHEMA_VERSION, Column, schema
from lstmprof.implementations import ROWS
from lstmprof.runs.fields import Flag, Int, Real, RunInfo as RunInfo, Text

AGAIN = "capture or ingest the run again"
#: Message for a run whose schema version is too new.
NEWER = "was written by a newer lstmprof (schema version {}; this version reads up to {})"
UPGRADE = "upgrade lstmprof"

_Item = TypeVar("_Item")


#: Setting → function that reads the value. Other settings are fields of run.json.
_CONDITIONS: Mapping[str, Callable[[RunInfo], Any]] = {
    "workload": lambda info: info.workload or None,
    "device": lambda info: info.device_name or next(iter(info.device_names.values()), None),
}


def condition(name: str, info: RunInfo) -> Any:
    """Return a run's value of one of ``names.CONDITIONS``, such as ``precision``."""
    return _CONDITIONS.get(name, attrgetter(name))(info)


def alike(
    items: Iterable[_Item], info_of: Callable[[_Item], RunInfo], across: Collection[str] = ()
) -> list[list[_Item]]:
    """Group items by the settings of runs, but ignore the settings ``across``."""
    conditions = [name for name in names.CONDITIONS if name not in across]
    groups: dict[tuple[Any, ...], list[_Item]] = {}
    for item in items:
        values = tuple(condition(name, info_of(item)) for name in conditions)
        groups.setdefault(values, []).append(item)
    return list(groups.values())


@dataclass(frozen=True)
class Fact:
    """A field of run.json, such as ``hardware.gpu``, and its SQL column."""

    field_path: str
    column: Column

    def value(self, info: RunInfo) -> Any:
        """Return the field's value for SQL. A nested value becomes JSON."""
        value = functools.reduce(getattr, self.field_path.split("."), info)
        if value is None or not pa.types.is_string(self.column.type) or isinstance(value, str):
            return value
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


#: Type of a field in run.json → type of the SQL column.
_COLUMN_TYPES = {
    **{Int: pa.int64(), Real: pa.float64(), Flag: pa.bool_()},
    **dict.fromkeys((Text, str), pa.string()),
}


def _facts(record: type[msgspec.Struct], prefix: str = "") -> Iterator[Fact]:
    """Yield the fields of a record type, and the fields of nested records."""
    for name, hint in get_type_hints(record, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            yield from _facts(hint, f"{name}.")
            continue
        meta = hint.__metadata__[-1]
        arrow = _COLUMN_TYPES.get(hint.__origin__)
        meaning = meta.description if arrow else f"{meta.description}, as JSON"
        column = meta.extra["column"] or name
        yield Fact(
            prefix + name,
            Column.of_type(arrow or pa.string(), column, meaning, meta.extra["null_when"]),
        )


@functools.cache
def facts() -> tuple[Fact, ...]:
    """Return all fields of run.json that the SQL table ``runs`` shows."""
    return tuple(_facts(RunInfo))


def facts_table(infos: Sequence[tuple[str, RunInfo]]) -> pa.Table:
    """Make the SQL table ``runs``."""
    rows = [
        {fact.column.name: fact.value(info) for fact in facts()} | {"run": name}
        for name, info in infos
    ]
    return pa.Table.from_pylist(rows, schema=schema([fact.column for fact in facts()]))


def run_info(facts: Mapping[str, Any]) -> RunInfo:
    """Make the record of a run.json from {field: value}; refuse unknown fields."""
    with _run_errors(f"run '{facts.get('name', '')}'"):
        info = msgspec.convert(facts, RunInfo)
    unknown = list(_unknown(facts, info))
    if unknown:
        raise TypeError(f"unknown fields of run.json: {', '.join(unknown)}")
    return info


def _unknown(facts: Mapping[str, Any], record: msgspec.Struct) -> Iterator[str]:
    for name, value in facts.items():
        if name not in record.__struct_fields__:
            yield name
        elif isinstance(inner := getattr(record, name), msgspec.Struct):
            yield from (f"{name}.{field}" for field in _unknown(value, inner))


class _Version(msgspec.Struct):
    schema_version: Any = None


def decoded(text: bytes, place: object) -> RunInfo:
    """Parse a run.json, and replace an old name of an implementation by the new name."""
    with _run_errors(place):
        version = msgspec.json.decode(text, type=_Version).schema_version
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise RunError(f"{place}: {NEWER.format(version, SCHEMA_VERSION)}", UPGRADE)
        info = msgspec.json.decode(text, type=RunInfo)
        row = ROWS.get(info.implementation or "")
        return info if row is None else msgspec.structs.replace(info, implementation=row.name)


@contextmanager
def _run_errors(place: object) -> Iterator[None]:
    """Convert errors of parsing a run.json to ``RunError``."""
    try:
        yield
    except msgspec.ValidationError as fault:
        reason, _, field = str(fault).replace("`", "").partition(" - at $.")
        where = f"{place}: {field}" if field else place
        raise RunError(f"{where}: {reason[0].lower()}{reason[1:]}", AGAIN) from fault
    except (ValueError, RecursionError) as fault:
        raise RunError(f"{place}: is damaged ({str(fault).rstrip('.')})", AGAIN) from fault


def encoded(info: RunInfo) -> bytes:
    try:
        text = msgspec.json.encode(info)
    except UnicodeEncodeError:  # a lone surrogate in a file's name or a profile
        text = json.dumps(msgspec.to_builtins(info), ensure_ascii=False).encode(errors="replace")
    return msgspec.json.format(text, indent=1) + b"\n"
