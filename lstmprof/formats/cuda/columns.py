"""Events on their way from a table of a database into the events table, column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.events.table import events_table
from lstmprof.formats import rows
from lstmprof.formats.cuda import nvtx
from lstmprof.formats.cuda.sqlite import UNKNOWN, Ints

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TEXTS = ("kind", "name", "shapes")
_INTS = (
    *("pid", "tid", "device", "stream", "correlation_id", "external_id"),
    *("graph_node_id", "bytes"),
)


@dataclass(frozen=True)
class Batch:
    """Events of one table, all arrays of one length.

    ``ints`` holds ``start_ns``, ``end_ns`` and columns of the events table, ``UNKNOWN`` for null;
    ``texts`` holds ``kind``, ``name`` and, of ops, ``shapes``.
    """

    ints: Mapping[str, Ints]
    texts: Mapping[str, pa.DictionaryArray]

    def __len__(self) -> int:
        return len(self.ints["start_ns"])

    def only(self, wanted: np.ndarray) -> Batch:
        """The events where ``wanted``, a boolean each, is true."""
        mask = pa.array(wanted)
        return Batch(
            {name: values[wanted] for name, values in self.ints.items()},
            {name: values.filter(mask) for name, values in self.texts.items()},
        )

    def with_ints(self, **columns: Ints) -> Batch:
        """The same events with these columns replaced."""
        return replace(self, ints={**self.ints, **columns})


def constant(text: str, length: int) -> pa.DictionaryArray:
    """``length`` times the same text."""
    return pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), [text])


def named(keys: Ints, name_of: Callable[[int], str | None]) -> pa.DictionaryArray:
    """``name_of`` of each key, null for None; it is asked once a distinct key."""
    distinct, codes = np.unique(keys, return_inverse=True)
    texts = pa.array([name_of(key) for key in distinct.tolist()], pa.string())
    return texts.dictionary_encode().take(pa.array(codes))


def described(ints: Mapping[str, Ints], text: pa.Array) -> Batch:
    """NVTX ranges by what their texts say, each distinct one read once, ids of ops aside."""
    alike, ids = _without_ids(text)
    encoded = alike.dictionary_encode()
    said = [nvtx.described(one) for one in encoded.dictionary.to_pylist()]
    own = np.array([UNKNOWN if d.external_id is None else d.external_id for d in said], np.int64)
    codes = encoded.indices.to_numpy()
    columns = {
        name: pa.array([getattr(d, name) for d in said], pa.string()).dictionary_encode()
        for name in ("kind", "name", "shapes")
    }
    has_id = (ids != UNKNOWN) & (own != UNKNOWN)[codes]
    return Batch(
        {**ints, "external_id": np.where(has_id, positive(ids), own[codes])},
        {name: values.take(encoded.indices) for name, values in columns.items()},
    )


def _without_ids(text: pa.Array) -> tuple[pa.Array, Ints]:
    """Texts, those of emit_nvtx with numbers that all have, and the ids of the ops that had one."""
    parts = pc.extract_regex(text, nvtx.EMITTED)
    head, seq, op_id, sizes = (parts.field(name) for name in ("head", "seq", "op_id", "sizes"))
    has_seq, has_id = (pc.not_equal(part, "") for part in (seq, op_id))
    alike = pc.binary_join_element_wise(
        *(head, pc.if_else(has_seq, ", seq = 1", ""), pc.if_else(has_id, ", op_id = 1", "")),
        *(sizes, ""),
    )
    is_emitted = pc.and_(parts.is_valid(), pc.or_(has_seq, has_id)).fill_null(False)
    digits = pc.replace_substring(pc.if_else(has_id, op_id, None), ", op_id = ", "")
    ids = np.asarray(digits.cast(pa.int64()).fill_null(UNKNOWN).to_numpy(zero_copy_only=False))
    return pc.if_else(is_emitted, alike, text), ids


def natural(values: Ints) -> Ints:
    """``values`` where they number something: 0 or more, and not CUPTI's unsigned −1."""
    return np.where((values >= 0) & (values != 2**32 - 1), values, UNKNOWN)


def positive(values: Ints) -> Ints:
    """``values`` where they are ids: above 0."""
    return np.where(values > 0, values, UNKNOWN)


def timed(batch: Batch) -> Batch:
    """The events of ``batch`` with a possible start and an end not before it."""
    start, end = batch.ints["start_ns"], batch.ints["end_ns"]
    possible = (start >= -rows.MAX_NS) & (end <= rows.MAX_NS) & (end >= start)
    return batch if possible.all() else batch.only(possible)


def closed(ranges: Batch, last_ns: int) -> Batch:
    """``ranges`` of which those without an end last until ``last_ns``, or their start."""
    start, end = ranges.ints["start_ns"], ranges.ints["end_ns"]
    return ranges.with_ints(end_ns=np.where(end == UNKNOWN, np.maximum(start, last_ns), end))


def within(batch: Batch, first_ns: int, last_ns: int) -> Batch:
    """The events of ``batch`` that touch [first_ns, last_ns]."""
    return batch.only((batch.ints["end_ns"] >= first_ns) & (batch.ints["start_ns"] <= last_ns))


def span(found: Sequence[Batch]) -> tuple[int, int] | None:
    """(first start, last end) of all events, None where there is none."""
    found = [batch for batch in found if len(batch)]
    if not found:
        return None
    first = min(int(batch.ints["start_ns"].min()) for batch in found)
    return first, max(int(batch.ints["end_ns"].max()) for batch in found)


def table(found: Sequence[Batch], origin_ns: int) -> pa.Table:
    """The events table of all events, their times counted from ``origin_ns``."""
    start = np.concatenate([batch.ints["start_ns"] for batch in found])
    end = np.concatenate([batch.ints["end_ns"] for batch in found])
    columns = {"start_ns": start - origin_ns, "dur_ns": end - start}
    for name in _INTS:
        values = np.concatenate(
            [batch.ints.get(name, np.full(len(batch), UNKNOWN)) for batch in found]
        )
        columns[name] = pa.array(values, mask=values == UNKNOWN)
    return events_table({**columns, **{name: _joined(found, name) for name in _TEXTS}})


def _joined(found: Sequence[Batch], name: str) -> pa.Array:
    parts = [batch.texts.get(name, pa.nulls(len(batch), _TEXT)).cast(_TEXT) for batch in found]
    return pa.chunked_array(parts, _TEXT).unify_dictionaries().combine_chunks()
