"""What the numbers in one process's tables of a rocpd database mean.

Every table has its rows' numbers as ``id``, to which others point: a region to its thread and the
string that is its name, a kernel to its symbol and agent, each of both to its row of
``rocpd_event``. Strings and events, as many as regions and kernels, are looked up and not kept.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lstmprof.events import DeviceFacts
from lstmprof.formats import rows
from lstmprof.formats.cuda.sqlite import Database
from lstmprof.formats.cuda.tables import UNKNOWN, Ints
from lstmprof.formats.raw_file import json_value

#: What of an event's row in ``rocpd_event`` is read.
_OF_EVENT = ("category_id", "stack_id")
#: So many of the strings that were asked for are kept.
_KEPT_STRINGS = 4096


@dataclass(frozen=True)
class Gpu:
    """A GPU of the machine; ``index`` is its node's number."""

    index: int
    name: str
    facts: DeviceFacts


class Process:
    """One process: the tables whose names end with ``suffix``."""

    def __init__(self, database: Database, suffix: str) -> None:
        self._database, self._suffix = database, suffix
        self.pids = self._numbers("info_process", "pid")
        self.machines = set(self._numbers("info_process", "nid").values())
        self.tids = self._numbers("info_thread", "tid")
        self.string = functools.lru_cache(_KEPT_STRINGS)(self._string)

    def chunks(self, table: str, *columns: str) -> Iterator[Mapping[str, Ints]]:
        """These columns of a table, some rows at a time; none where there is no such table.

        With them ``category_id``, of what kind an event is, and ``stack_id``, the number that a
        call has in common with what it launched, of the row's ``event_id``.
        """
        own, events = self._table(table), self._table("event")
        if own not in self._database.columns:
            return
        scans = self._database.int_chunks(own, *columns, "event_id")
        if not self._points_to(own, events):
            yield from ({**dict.fromkeys(_OF_EVENT, _unknown(read)), **read} for read in scans)
            return
        found = self._database.pointed_ints(own, "event_id", events, "id", *_OF_EVENT)
        for read, event in zip(scans, found, strict=True):
            is_its = event["id"] == read["event_id"]
            of_event = {name: np.where(is_its, event[name], UNKNOWN) for name in _OF_EVENT}
            yield {**of_event, **read}

    def extdata(self, table: str) -> Iterator[list[str | None]]:
        """What each row's event says beside its columns, as many as of ``chunks``, or none."""
        own, events = self._table(table), self._table("event")
        if self._points_to(own, events):
            chunks = self._database.pointed_texts(own, "event_id", events, "extdata")
            yield from (texts.to_pylist() for texts in chunks)

    def _points_to(self, own: str, events: str) -> bool:
        columns = self._database.columns
        has_events = {"id", "extdata"} <= columns.get(events, frozenset())
        return has_events and "event_id" in columns.get(own, ())

    def _string(self, number: int) -> str | None:
        table = self._table("string")
        if {"id", "string"} <= self._database.columns.get(table, frozenset()) and number >= 0:
            return self._database.text_at(table, "string", number)
        return None

    @cached_property
    def kernel_names(self) -> dict[int, str]:
        """The names of kernels by number, as people read them."""
        table = self._table("info_kernel_symbol")
        names = {
            **self._database.strings(table, "id", "kernel_name"),
            **{n: name for n, name in self._texts(table, "display_name") if name},
        }
        return {number: name.removesuffix(".kd") for number, name in names.items() if name}

    @cached_property
    def gpus(self) -> dict[int, Gpu]:
        """The GPUs by the number of their agent."""
        table = self._table("info_agent")
        if table not in self._database.columns:
            return {}
        indexes = self._numbers("info_agent", "absolute_index")
        names = {
            **self._database.strings(table, "id", "name"),
            **{n: name for n, name in self._texts(table, "product_name") if name},
        }
        facts = dict(self._texts(table, "extdata"))
        return {
            agent: Gpu(indexes[agent], names.get(agent) or "AMD GPU", _facts(facts.get(agent)))
            for agent, type_ in self._texts(table, "type")
            if type_ == "GPU" and agent in indexes
        }

    def _table(self, name: str) -> str:
        return f"rocpd_{name}{self._suffix}"

    def _numbers(self, table: str, column: str) -> dict[int, int]:
        """The numbers of one column by ``id``, of 0 or more."""
        read = self.chunks(table, "id", column)
        pairs = (zip(c["id"].tolist(), c[column].tolist(), strict=True) for c in read)
        return {key: number for chunk in pairs for key, number in chunk if min(key, number) >= 0}

    def _texts(self, table: str, column: str) -> list[tuple[int, str]]:
        return list(self._database.strings(table, "id", column).items())


def _unknown(read: Mapping[str, Ints]) -> Ints:
    return np.full(len(read["event_id"]), UNKNOWN)


def message(extdata: str | None) -> str | None:
    """The text that ROCTx was given, None where there is none."""
    text = _object(extdata).get("message")
    return rows.clean(text) if isinstance(text, str) and text else None


def _facts(extdata: str | None) -> DeviceFacts:
    said = _object(extdata)
    return rows.device_facts(None, None, said.get("cu_count"), said.get("wave_front_size"))


def _object(text: str | None) -> Mapping[str, Any]:
    try:
        value = json_value((text or "{}").encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
