"""Which GPU a device number of an Nsight Systems export means.

``deviceId`` is what CUDA calls the device in its process; with CUDA_VISIBLE_DEVICES two processes
may call two GPUs 0. ``TARGET_INFO_CUDA_DEVICE`` (since 2024) says which GPU is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lstmprof.formats.cuda.columns import Batch, natural
from lstmprof.formats.cuda.sqlite import UNKNOWN, Database

_GPUS, _DEVICES = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"


@dataclass(frozen=True)
class Devices:
    """``names`` by device number; ``gpus`` are numbers by (pid, deviceId) where these differ."""

    names: Mapping[int, str]
    gpus: Mapping[tuple[int, int], int]

    def renumbered(self, batch: Batch) -> Batch:
        """``batch`` with the numbers of ``gpus``."""
        if not self.gpus:
            return batch
        pid, device = batch.ints["pid"], batch.ints["device"]
        pairs, codes = np.unique(np.stack([pid, device]), axis=1, return_inverse=True)
        renamed = np.array([self.gpus.get((p, d), d) for p, d in pairs.T.tolist()], np.int64)
        return batch.with_ints(device=natural(renamed)[codes.reshape(-1)])


def devices(database: Database) -> Devices:
    """The devices of an export, without names where it has none."""
    listed = database.strings(_GPUS, "id", "name")
    gpu_names = {number: name for number, name in listed.items() if number >= 0}
    if _DEVICES not in database.columns:
        return Devices(_named(_ordinals(database), gpu_names), {})
    read = database.ints(_DEVICES, "gpuId", "cudaId", "pid")
    gpu, cuda, pid = (read[name].tolist() for name in ("gpuId", "cudaId", "pid"))
    meant = dict(zip(cuda, gpu, strict=True))
    if all(meant[c] == g for c, g in zip(cuda, gpu, strict=True)):
        return Devices(_named(meant, gpu_names), {})
    return Devices(gpu_names, dict(zip(zip(pid, cuda, strict=True), gpu, strict=True)))


def _named(gpus: Mapping[int, int], gpu_names: Mapping[int, str]) -> dict[int, str]:
    return {n: gpu_names[gpu] for n, gpu in gpus.items() if gpu in gpu_names and n >= 0}


def _ordinals(database: Database) -> dict[int, int]:
    """Nsight's number of each GPU by CUDA's, where the table has it, else by itself."""
    if _GPUS not in database.columns:
        return {}
    read = database.ints(_GPUS, "id", "cuDevice")
    numbers = np.where(read["cuDevice"] == UNKNOWN, read["id"], read["cuDevice"])
    return dict(zip(numbers.tolist(), read["id"].tolist(), strict=True))
