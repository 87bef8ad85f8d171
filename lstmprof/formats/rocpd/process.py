"""What the numbers in one process's tables of a rocpd database mean.

Every table but that of strings has its rows' numbers as ``id``, to which others point: a region to
its thread, a kernel to its symbol and agent, each of both to its row of ``rocpd_event``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.events import DeviceFacts
from lstmprof.formats import rows
from lstmprof.formats.cuda.tables import UNKNOWN, Ints, Tables
from lstmprof.formats.raw_file import json_value

_MARKER = "MARKER"


@dataclass(frozen=True)
class Gpu:
    """A GPU of the machine; ``index`` is its node's number."""

    index: int
    name: str
    facts: DeviceFacts


@dataclass(frozen=True)
class Origins:
    """The rows of ``rocpd_event``, by rising ``ids``: of what kind, and launched by which call.

    ``stacks`` are the numbers that a call has in common with what it launched; ``messages`` the
    texts of ROCTx ranges, null elsewhere.
    """

    ids: Ints
    categories: Ints
    stacks: Ints
    messages: pa.ChunkedArray

    def of(self, event_ids: Ints) -> Origins:
        """The row of each event, ``UNKNOWN`` and null where there is none."""
        if not len(self.ids):
            nothing = np.full(len(event_ids), UNKNOWN)
            none = pa.chunked_array([pa.nulls(len(event_ids), pa.string())])
            return Origins(event_ids, nothing, nothing, none)
        places = np.minimum(np.searchsorted(self.ids, event_ids), len(self.ids) - 1)
        hit = self.ids[places] == event_ids
        return Origins(
            event_ids,
            np.where(hit, self.categories[places], UNKNOWN),
            np.where(hit, self.stacks[places], UNKNOWN),
            self.messages.take(pa.array(places, mask=~hit)),
        )


class Process:
    """One process: the tables whose names end with ``suffix``."""

    def __init__(self, database: Tables, suffix: str) -> None:
        self._database, self._suffix = database, suffix
        self.strings = database.strings(self._table("string"), "id", "string")
        self.pids = self._numbers("info_process", "pid")
        self.machines = set(self._numbers("info_process", "nid").values())
        self.tids = self._numbers("info_thread", "tid")

    def chunks(self, table: str, *columns: str) -> Iterator[Mapping[str, Ints]]:
        """These columns of a table, some rows at a time; none where there is no such table."""
        if self._table(table) in self._database.columns:
            yield from self._database.int_chunks(self._table(table), *columns)

    def numbers_of(self, *words: str) -> Ints:
        """The numbers of the strings in which each of ``words`` stands."""
        numbers = [n for n, text in self.strings.items() if all(word in text for word in words)]
        return np.array(numbers, np.int64)

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

    @cached_property
    def origins(self) -> Origins:
        """The rows of ``rocpd_event``."""
        read = {name: [np.empty(0, np.int64)] for name in ("id", "category_id", "stack_id")}
        for chunk in self.chunks("event", *read):
            for name, values in read.items():
                values.append(chunk[name])
        ids, categories, stacks = (np.concatenate(values) for values in read.values())
        is_marker = np.isin(categories, self.numbers_of(_MARKER))
        messages = self._messages(is_marker)
        if np.all(ids[1:] > ids[:-1]):
            return Origins(ids, categories, stacks, messages)
        order = np.argsort(ids, kind="stable")
        return Origins(ids[order], categories[order], stacks[order], messages.take(order))

    def _messages(self, is_marker: np.ndarray) -> pa.ChunkedArray:
        """What ROCTx was told, null of events that are no markers."""
        nothing = pa.chunked_array([pa.nulls(len(is_marker), pa.string())])
        if not is_marker.any() or "extdata" not in self._database.columns[self._table("event")]:
            return nothing
        chunks, begin = [], 0
        for texts in self._database.text_chunks(self._table("event"), "extdata"):
            wanted = is_marker[begin : begin + len(texts)].tolist()
            given = zip(wanted, texts.to_pylist(), strict=True)
            messages = [_message(text) if is_one else None for is_one, text in given]
            chunks.append(pa.array(messages, pa.string()))
            begin += len(texts)
        return pa.chunked_array(chunks, pa.string())

    def _table(self, name: str) -> str:
        return f"rocpd_{name}{self._suffix}"

    def _numbers(self, table: str, column: str) -> dict[int, int]:
        """The numbers of one column by ``id``, of 0 or more."""
        read = self.chunks(table, "id", column)
        pairs = (zip(c["id"].tolist(), c[column].tolist(), strict=True) for c in read)
        return {key: number for chunk in pairs for key, number in chunk if min(key, number) >= 0}

    def _texts(self, table: str, column: str) -> list[tuple[int, str]]:
        return list(self._database.strings(table, "id", column).items())


def _message(extdata: str | None) -> str | None:
    message = _object(extdata).get("message")
    return rows.clean(message) if isinstance(message, str) and message else None


def _facts(extdata: str | None) -> DeviceFacts:
    said = _object(extdata)
    return rows.device_facts(None, None, said.get("cu_count"), said.get("wave_front_size"))


def _object(text: str | None) -> Mapping[str, Any]:
    try:
        value = json_value((text or "{}").encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
