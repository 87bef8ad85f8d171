"""The step loop for PyTensor, with PyTensor's C backend (``CVM``).

The Numba backend, the default since 3.0, compiles a step to one function, in which lstmprof cannot
time operators. Steps were equally fast with both backends.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator

import pytensor
import pytensor.tensor as pt
import pytensor.tensor.special
from pytensor.compile.mode import Mode, get_mode
from pytensor.link.vm import VMLinker

from lstmprof.capture.worker.loops import _cpu, symbolic as _symbolic

BACKEND = "CVM"
#: Functions for CPUs. NumPy's matmul measures the peak rate.
device_of, set_threads, product, copy = _cpu.device_of, _cpu.set_threads, _cpu.product, _cpu.copy


@contextlib.contextmanager
def _clocked(linker: Any) -> Iterator[Any]:
    yield Mode(linker, get_mode(BACKEND).optimizer)


LIBRARY = _symbolic.Library(
    name="pytensor",
    title="PyTensor",
    package=pytensor,
    tensor=pt,
    machine=VMLinker,
    log_softmax=lambda outputs: pytensor.tensor.special.log_softmax(outputs, axis=1),
    variable=lambda name, dtype, n: pt.tensor(name, dtype=dtype, shape=(None,) * n),
    mode=lambda: get_mode(BACKEND),
    clocked=_clocked,
)


class Trainer(_symbolic.Trainer):
    library = LIBRARY

    def facts(self) -> Dict[str, Any]:
        return dict(super().facts(), backend=BACKEND)
