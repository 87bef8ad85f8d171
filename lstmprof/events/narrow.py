"""Columns in a third of their memory: integers, and places of texts, in the narrowest types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def narrowed(array: pa.Array) -> pa.Array:
    """``array``, of integers or of a dictionary's texts, in the narrowest type that holds it."""
    if pa.types.is_dictionary(array.type):
        return _narrow(array, array.type)
    bounds = pc.min_max(array)
    return array.cast(_narrowest(bounds["min"].as_py() or 0, bounds["max"].as_py() or 0))


def narrow_table(file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    """``columns`` of ``file``, one chunk each; a row group is narrowed when it is read.

    By its statistics, where all row groups have them.

    Raises:
        OSError, pa.ArrowException: the file is damaged.
    """
    types = {name: _narrow_type(file.metadata, file.schema_arrow, name) for name in columns}
    parts: list[list[pa.Array]] = [[] for _ in columns]
    for group in range(file.num_row_groups):
        read = file.read_row_group(group, list(columns))
        for name, part in zip(columns, parts, strict=True):
            part += [_narrow(chunk, types[name]) for chunk in read.column(name).chunks]
    # One by one, so that no more than one column is there twice.
    whole = [_joined(parts.pop(0), types[name]) for name in columns]
    return pa.table(whole, names=columns)


def _narrow_type(metadata: pq.FileMetaData, found: pa.Schema, name: str) -> pa.DataType:
    if not pa.types.is_integer(found.field(name).type):
        return found.field(name).type
    place = found.get_field_index(name)
    bounds = [0]
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(place)
        told = column.statistics
        if told is not None and told.has_min_max:
            bounds += [told.min, told.max]
        elif told is None or told.null_count != column.num_values:
            return found.field(name).type
    return _narrowest(min(bounds), max(bounds))


def _narrow(chunk: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(type_):
        return chunk.cast(type_)
    indices = chunk.indices.cast(_narrowest(0, len(chunk.dictionary)))
    return pa.DictionaryArray.from_arrays(indices, chunk.dictionary)


def _joined(chunks: list[pa.Array], type_: pa.DataType) -> pa.Array:
    if not chunks or not pa.types.is_dictionary(type_):
        return pa.chunked_array(chunks, type_).combine_chunks()
    indices = _narrowest(0, sum(len(chunk.dictionary) for chunk in chunks))
    alike = [
        pa.DictionaryArray.from_arrays(chunk.indices.cast(indices), chunk.dictionary)
        for chunk in chunks
    ]
    return pa.concat_arrays(alike)


def _narrowest(least: int, most: int) -> pa.DataType:
    """The narrowest signed type of integers that holds ``least``, ``most`` and −1."""
    for width in (pa.int8(), pa.int16(), pa.int32()):
        limit: int = 2 ** (width.bit_width - 1)
        if -limit <= least and most < limit:
            return width
    return pa.int64()
