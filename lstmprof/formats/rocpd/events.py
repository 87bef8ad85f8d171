"""The events in one process's tables of a rocpd database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lstmprof.events import launch_config
from lstmprof.events.groups import Groups
from lstmprof.formats.cuda.events import Batch, constant, named, natural, positive
from lstmprof.formats.cuda.names import nvtx_ranges
from lstmprof.formats.cuda.tables import UNKNOWN, Ints
from lstmprof.formats.rocpd.process import Process, message
from lstmprof.formats.rocprofv3 import COPIES

_TIMES = ("start", "end", "pid")
_GRID = ("grid_size_x", "grid_size_y", "grid_size_z")
_BLOCK = ("workgroup_size_x", "workgroup_size_y", "workgroup_size_z")
_OF_LAUNCH = (*_GRID, *_BLOCK, "group_segment_size")


class Events:
    """The events of ``process``; ``devices`` are the numbers of GPUs by their node's.

    ``left_out`` counts those without a name or a device, of what was read until now.
    """

    def __init__(self, process: Process, devices: Mapping[int, int]) -> None:
        self._process = process
        self._devices = {agent: devices[gpu.index] for agent, gpu in process.gpus.items()}
        self.left_out = 0

    def activities(self) -> Iterator[Batch]:
        """Kernels and copies."""
        yield from self._kernels()
        yield from self._copies()

    def regions(self) -> Iterator[Batch]:
        """Calls of HIP and ROCTx ranges; those of HSA, RCCL and the compiler are left out."""
        extdata = self._process.extdata("region")
        for read in self._process.chunks("region", *_TIMES, "tid", "name_id"):
            self.left_out += int((read["category_id"] == UNKNOWN).sum())
            tid = _numbered(read["tid"], self._process.tids)
            yield self._calls({**self._launched(read), "tid": tid}, read)
            yield self._ranges({**self._timed(read), "tid": tid}, read, next(extdata, []))

    def _calls(self, ints: Mapping[str, Ints], read: Mapping[str, Ints]) -> Batch:
        is_call = self._says(read["category_id"], _is_of_hip)
        name = named(read["name_id"][is_call], self._process.string)
        texts = {"kind": constant("runtime", len(name)), "name": name}
        return self._known(Batch({n: values[is_call] for n, values in ints.items()}, texts))

    def _ranges(
        self, ints: Mapping[str, Ints], read: Mapping[str, Ints], extdata: Sequence[str | None]
    ) -> Batch:
        """The ROCTx ranges among regions; those without a text are left out."""
        is_marker = self._says(read["category_id"], lambda text: "MARKER" in text)
        is_range = is_marker & self._says(read["category_id"], lambda text: "RANGE" in text)
        others = np.flatnonzero(is_marker & ~is_range)
        is_range[others] = self._says(read["name_id"][others], lambda text: "Range" in text)
        places = np.flatnonzero(is_range)
        said = [message(extdata[i]) if extdata else None for i in places.tolist()]
        names = read["name_id"][places].tolist()
        said = [text or self._own(name) for text, name in zip(said, names, strict=True)]
        has_text = np.array([text is not None for text in said], np.bool_)
        self.left_out += int((~has_text).sum())
        texts = pa.array([text for text in said if text is not None], pa.string())
        kept = places[has_text]
        return nvtx_ranges({name: values[kept] for name, values in ints.items()}, texts)

    def _own(self, name_id: int) -> str | None:
        """The name of a region where it is the text of a range, as since 2026, not of a call."""
        name = self._process.string(name_id)
        return None if name is None or name.startswith("roctx") else name or None

    def _says(self, numbers: Ints, is_meant: Callable[[str], bool]) -> np.ndarray:
        """Whether the string of each number is meant."""
        distinct, codes = np.unique(numbers, return_inverse=True)
        texts = [self._process.string(number) or "" for number in distinct.tolist()]
        return np.array([is_meant(text) for text in texts], np.bool_)[codes]

    def _kernels(self) -> Iterator[Batch]:
        columns = (*_TIMES, "agent_id", "kernel_id", "stream_id", "queue_id", "graph_node_id")
        for read in self._process.chunks("kernel_dispatch", *columns, *_OF_LAUNCH):
            has_stream = read["stream_id"] != UNKNOWN
            ints = {
                **self._launched(read),
                "device": _numbered(read["agent_id"], self._devices),
                "stream": natural(np.where(has_stream, read["stream_id"], read["queue_id"])),
                "graph_node_id": positive(read["graph_node_id"]),
            }
            name = named(read["kernel_id"], self._process.kernel_names.get)
            texts = {"kind": constant("kernel", len(name)), "name": name}
            yield self._known(Batch(ints, {**texts, "launch_config": _launch_configs(read)}))

    def _copies(self) -> Iterator[Batch]:
        columns = (*_TIMES, "name_id", "dst_agent_id", "src_agent_id", "size", "stream_id")
        for read in self._process.chunks("memory_copy", *columns, "graph_node_id"):
            target = _numbered(read["dst_agent_id"], self._devices)
            source = _numbered(read["src_agent_id"], self._devices)
            ints = {
                **self._launched(read),
                "device": np.where(target == UNKNOWN, source, target),
                "stream": natural(read["stream_id"]),
                "graph_node_id": positive(read["graph_node_id"]),
                "bytes": np.where(read["size"] >= 0, read["size"], UNKNOWN),
            }
            name = named(read["name_id"], self._copy_name)
            yield self._known(Batch(ints, {"kind": constant("memcpy", len(name)), "name": name}))

    def _copy_name(self, number: int) -> str | None:
        direction = (self._process.string(number) or "").removeprefix("MEMORY_COPY_")
        return f"Memcpy {COPIES[direction]}" if direction in COPIES else None

    def _timed(self, read: Mapping[str, Ints]) -> dict[str, Ints]:
        pid = positive(_numbered(read["pid"], self._process.pids))
        return {"start_ns": read["start"], "end_ns": read["end"], "pid": pid}

    def _launched(self, read: Mapping[str, Ints]) -> dict[str, Ints]:
        return {**self._timed(read), "correlation_id": positive(read["stack_id"])}

    def _known(self, batch: Batch) -> Batch:
        """The events of ``batch`` that have a name, and of activities a device."""
        is_known = batch.texts["name"].is_valid().to_numpy(zero_copy_only=False)
        if "device" in batch.ints:
            is_known = is_known & (batch.ints["device"] != UNKNOWN)
        self.left_out += int((~is_known).sum())
        return batch.only(is_known)


def _is_of_hip(category: str) -> bool:
    return "HIP_" in category and "_API" in category and "COMPILER" not in category


def _numbered(keys: Ints, numbers: Mapping[int, int]) -> Ints:
    """The number of each key, ``UNKNOWN`` where it has none."""
    distinct, codes = np.unique(keys, return_inverse=True)
    return np.array([numbers.get(key, UNKNOWN) for key in distinct.tolist()], np.int64)[codes]


def _launch_configs(read: Mapping[str, Ints]) -> pa.DictionaryArray:
    """What each kernel was launched with; the size of a grid is in threads, as HSA has it."""
    columns = [read[name] for name in _OF_LAUNCH]
    group = Groups(*columns)
    distinct = zip(*(column[group.first].tolist() for column in columns), strict=True)
    texts = pa.array([_launch_config(*numbers) for numbers in distinct], pa.string())
    return texts.dictionary_encode().take(pa.array(group.of))


def _launch_config(*numbers: int) -> str | None:
    grid, block, shared = numbers[:3], numbers[3:6], numbers[6]
    has_block, has_grid = min(block) > 0, min(*grid, *block) > 0
    sizes = zip(grid, block, strict=True)
    return launch_config.text(
        {
            "grid": [-(-threads // of_block) for threads, of_block in sizes] if has_grid else None,
            "block": list(block) if has_block else None,
            "shared_bytes": shared if shared >= 0 else None,
        }
    )
