"""Which GPU an export of Nsight Systems means where it gives a device, or a context, a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from lstmprof.events import DeviceFacts
from lstmprof.formats.cuda.events import Batch, device_facts, natural
from lstmprof.formats.cuda.tables import UNKNOWN, Ints, Tables

_Of = TypeVar("_Of")

_GPUS, _DEVICES = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
_OF_GPU = ("computeMajor", "computeMinor", "smCount", "threadsPerWarp")


@dataclass(frozen=True)
class Devices:
    """``names`` and ``facts`` by device number; ``gpus`` are numbers by (pid, deviceId), or none.

    ``of_gpus`` are device numbers by those that Nsight Systems gives the GPUs. There are ``gpus``
    where the two differ. ``deviceId`` is what CUDA calls the device in its process;
    with CUDA_VISIBLE_DEVICES two processes may call two GPUs 0. ``TARGET_INFO_CUDA_DEVICE`` (since
    2024) says which GPU is meant.
    """

    names: Mapping[int, str]
    facts: Mapping[int, DeviceFacts]
    gpus: Mapping[tuple[int, int], int]
    of_gpus: Mapping[int, int]

    def renumbered(self, batch: Batch) -> Batch:
        """``batch`` with the numbers of ``gpus``."""
        if not self.gpus:
            return batch
        pid, device = batch.ints["pid"], batch.ints["device"]
        pairs, codes = np.unique(np.stack([pid, device]), axis=1, return_inverse=True)
        renamed = np.array([self.gpus.get((p, d), d) for p, d in pairs.T.tolist()], np.int64)
        return batch.with_ints(device=natural(renamed)[codes.reshape(-1)])


def devices_of(database: Tables) -> Devices:
    """The devices of an export, without names where it has none."""
    listed = database.strings(_GPUS, "id", "name")
    gpu_names = {number: name for number, name in listed.items() if number >= 0}
    facts = device_facts(database, _GPUS, _OF_GPU)
    if _DEVICES not in database.columns:
        ordinals = _ordinals(database)
        return _placed_once(ordinals, gpu_names, facts)
    read = database.ints(_DEVICES, "gpuId", "cudaId", "pid")
    gpu, cuda, pid = (read[name].tolist() for name in ("gpuId", "cudaId", "pid"))
    meant = dict(zip(cuda, gpu, strict=True))
    if all(meant[c] == g for c, g in zip(cuda, gpu, strict=True)):
        return _placed_once(meant, gpu_names, facts)
    gpus = dict(zip(zip(pid, cuda, strict=True), gpu, strict=True))
    return Devices(gpu_names, facts, gpus, {number: number for number in gpus.values()})


def _placed_once(
    gpus: Mapping[int, int], names: Mapping[int, str], facts: Mapping[int, DeviceFacts]
) -> Devices:
    """The devices of which each number is of one of the ``gpus``."""
    of_gpus = {gpu: number for number, gpu in gpus.items() if number >= 0}
    return Devices(_by_number(gpus, names), _by_number(gpus, facts), {}, of_gpus)


def _by_number(gpus: Mapping[int, int], of_gpus: Mapping[int, _Of]) -> dict[int, _Of]:
    return {n: of_gpus[gpu] for n, gpu in gpus.items() if gpu in of_gpus and n >= 0}


def _ordinals(database: Tables) -> dict[int, int]:
    """Nsight's number of each GPU by CUDA's, where the table has it, else by itself."""
    if _GPUS not in database.columns:
        return {}
    read = database.ints(_GPUS, "id", "cuDevice")
    numbers = np.where(read["cuDevice"] == UNKNOWN, read["id"], read["cuDevice"])
    return dict(zip(numbers.tolist(), read["id"].tolist(), strict=True))


class Contexts:
    """The device on which each context has its activities."""

    def __init__(self) -> None:
        self._devices: dict[int, int] = {}

    def noted(self, busy: Batch) -> Batch:
        """``busy``, whose contexts are known from now on."""
        contexts, first = np.unique(_context_key(busy.ints), return_index=True)
        devices = busy.ints["device"][first].tolist()
        for context, device in zip(contexts.tolist(), devices, strict=True):
            self._devices.setdefault(context, device)
        return busy

    def devices(self, ints: Mapping[str, Ints]) -> Ints:
        """The device of each event's context, where it is known, else its own."""
        contexts, codes = np.unique(_context_key(ints), return_inverse=True)
        is_known = np.array([context in self._devices for context in contexts.tolist()], bool)
        devices = np.array([self._devices.get(c, UNKNOWN) for c in contexts.tolist()], np.int64)
        return np.where(is_known[codes], devices[codes], ints["device"])


def _context_key(ints: Mapping[str, Ints]) -> Ints:
    return np.where(ints["pid"] > 0, ints["pid"], 0) << 32 | natural(ints["context"]) & 0xFFFFFFFF
