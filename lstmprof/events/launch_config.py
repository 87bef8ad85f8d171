"""Compact JSON columns: a kernel's launch configuration, and an op's input shapes and dtypes.

::

  {"grid":[80,1,1],"block":[128,1,1],"registers":32,"estimated_occupancy":0.31}

Occupancies are shares of the threads that a multiprocessor can hold: ``estimated`` for this grid
(Kineto), ``theoretical`` for a large grid (TensorFlow, JAX). Equal configurations are equal texts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from lstmprof.base.numbers import number_of, percent

_Three = tuple[int, int, int]

#: Most blocks of a grid (along x), and most threads of a block.
#: Source: CUDA C++ Programming Guide, "Compute Capabilities".
_MOST_BLOCKS, _MOST_THREADS = 2**31 - 1, 1024
#: Most registers per thread that lstmprof accepts; NVIDIA's hardware has 255, AMD's 512.
_MOST_REGISTERS = 1024
_MOST_BYTES = 2**30
_MOST_MESSAGE_BYTES, _MOST_RANKS = 2**48, 2**24
#: Most letters of a process group's name; longer names are cut. Chosen by hand.
_MOST_NAME = 100
_DECIMALS = 6


class LaunchConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The launch configuration of a kernel, and the message of a collective."""

    grid: _Three | None = None
    block: _Three | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    estimated_occupancy: float | None = None
    theoretical_occupancy: float | None = None
    operation: str | None = None
    message_bytes: int | None = None
    group_size: int | None = None
    process_group: str | None = None

    @property
    def words(self) -> str:
        """Describe the configuration for users: ``grid 80 × 1 × 1, block 128 × 1 × 1 …``."""
        values = []
        if self.grid:
            values.append(f"grid {_times(self.grid)}")
        if self.block:
            threads = number_of(math.prod(self.block), "thread", "threads")
            values.append(f"block {_times(self.block)} ({threads})")
        if self.registers:
            values.append(number_of(self.registers, "register per thread", "registers per thread"))
        if self.shared_bytes is not None:
            values.append(f"{self.shared_bytes:,} B of shared memory per block{self._parts}")
        if self.estimated_occupancy:
            values.append(f"estimated occupancy {percent(self.estimated_occupancy)}")
        if self.theoretical_occupancy:
            values.append(f"theoretical occupancy {percent(self.theoretical_occupancy)}")
        if self.message_bytes is not None:
            values.append(f"message of {self.message_bytes:,} B")
        if self.group_size:
            values.append(number_of(self.group_size, "rank", "ranks"))
        if self.process_group:
            values.append(f"process group {self.process_group}")
        return ", ".join(values)

    @property
    def _parts(self) -> str:
        """Describe static and dynamic shared memory."""
        total, dynamic = self.shared_bytes, self.dynamic_shared_bytes
        if not total or dynamic is None:
            return ""
        return f" ({total - dynamic:,} B static + {dynamic:,} B dynamic)"


_EMPTY = LaunchConfig()
_FIELDS = LaunchConfig.__struct_fields__


def text(values: Mapping[str, object]) -> str | None:
    """Write a launch configuration as JSON, without impossible values."""
    config = _possible(*(values.get(name) for name in _FIELDS))
    return None if config == _EMPTY else encoded(config)


def encoded(config: LaunchConfig) -> str:
    return msgspec.json.encode(config).decode()


def read(written: str) -> LaunchConfig | None:
    """Parse a launch configuration from any profiler."""
    try:
        values = msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        return None
    checked = text(values) if isinstance(values, dict) else None
    return None if checked is None else msgspec.json.decode(checked, type=LaunchConfig)


def _possible(
    grid: object,
    block: object,
    registers: object,
    shared: object,
    dynamic: object,
    estimated: object,
    theoretical: object,
    *message: object,
) -> LaunchConfig:
    blocks, threads = _three(grid, _MOST_BLOCKS), _three(block, _MOST_THREADS)
    if threads and math.prod(threads) > _MOST_THREADS:
        threads = None
    # drop the whole configuration, because some profilers write uninitialised numbers
    if (grid is not None and blocks is None) or (block is not None and threads is None):
        return _EMPTY
    register_count = _integer(registers, _MOST_REGISTERS)
    # drop the shared memory, too: impossible registers mean that the numbers are uninitialised
    if registers is not None and register_count is None:
        shared = None
    bytes_ = _integer(shared, _MOST_BYTES)
    dynamic_bytes = None if bytes_ is None else _integer(dynamic, bytes_)
    operation, moved, ranks, group = message
    return LaunchConfig(
        blocks,
        threads,
        register_count or None,
        bytes_,
        dynamic_bytes,
        _share(estimated),
        _share(theoretical),
        operation_of(operation) if isinstance(operation, str) else None,
        _integer(moved, _MOST_MESSAGE_BYTES),
        _integer(ranks, _MOST_RANKS) or None,
        group[:_MOST_NAME] or None if isinstance(group, str) else None,
    )


#: (part of a kernel's or range's name, collective operation); the first matching part decides.
_OPERATIONS = (
    *(("allreduce", "all_reduce"), ("crossdevicereduce", "all_reduce")),  # a kernel of vLLM
    ("allgather", "all_gather"),
    *(("reducescatter", "reduce_scatter"), ("alltoall", "all_to_all"), ("a2a", "all_to_all")),
    *(("broadcast", "broadcast"), ("reduce", "reduce"), ("gather", "gather")),
    *(("scatter", "scatter"), ("send", "send_recv"), ("recv", "send_recv")),
)
OPERATIONS = tuple(dict.fromkeys(operation for _, operation in _OPERATIONS))


def operation_of(name: str) -> str | None:
    """Return the collective in a name: ``ncclDevKernel_AllReduce_Sum`` -> ``all_reduce``."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((operation for part, operation in _OPERATIONS if part in plain), None)


#: Element type of PyTorch or TensorFlow → bytes of one element.
_ELEMENT_BYTES = {
    **dict.fromkeys(("double", "long", "long int", "int64", "float64", "complex<float>"), 8),
    **dict.fromkeys(("float", "int", "int32", "float32"), 4),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "short int", "int16"), 2),
    **dict.fromkeys(("signed char", "unsigned char", "char", "byte", "int8", "uint8", "bool"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), 1),
}


def element_bytes(dtype: object) -> int | None:
    """Return the size of an element in bytes: ``c10::Half`` -> 2."""
    return _ELEMENT_BYTES.get(str(dtype).removeprefix("c10::").lower())


def _three(value: object, most: int) -> _Three | None:
    """Return three integers from 1 to ``most``, or None."""
    entries = [_integer(each, most) for each in value] if isinstance(value, (list, tuple)) else []
    numbers = [number for number in entries if number]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == len(entries) == 3 else None


def _integer(value: object, most: int) -> int | None:
    """Return an integer from 0 to ``most``, or None."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        return None
    return value


def _share(value: object) -> float | None:
    """Return a share above 0 and at most 1, or None."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        return None
    return round(float(value), _DECIMALS) or None


def _times(three: _Three) -> str:
    return " × ".join(map(str, three))


#: Largest depth of lists that are read; lists of lists of shapes have depth 3.
MOST_DEPTH = 32
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def recorded_inputs(text: str) -> list[Any]:
    """Parse a JSON list; return [] if the text is no list or is nested too deeply."""
    if text.count("[") > MOST_DEPTH and _depth(text) > MOST_DEPTH:
        return []
    try:
        entries = json.loads(_SURROGATE.sub(r"\\ufffd", text))
    except (ValueError, RecursionError):  # objects in braces may be nested too deeply
        return []
    return entries if isinstance(entries, list) else []


def _depth(text: str) -> int:
    depth = most = 0
    for character in text:
        if character == "[":
            depth += 1
            most = max(most, depth)
        elif character == "]":
            depth -= 1
    return most
