"""A clock around the operators of PyTensor or Theano.

Both have sums per operator (``profile=True``) and no timeline. Their virtual machine calls one
thunk an operator, within a Scan too; here each is read before and after. That needs the machine
written in Python where the libraries' own is C (``use_cloop=False``), so that the compiled function
is another one than the timed: the inflation of the profile pass says what both cost.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Optional

import numpy as np

from lstmprof.capture.worker.readings import Readings

#: Operators whose inputs' shapes are read, at their first call: the products of matrices.
PRODUCTS = ("Dot22", "Dot22Scalar", "Gemm", "Dot", "BatchedDot")


def clocked_linker(machine: Any, library: str, readings: Readings) -> Any:
    """A linker like ``machine``, ``VMLinker`` of ``library``, whose thunks leave ``readings``.

    Its class knows the readings: a library that links another graph, as that within a Scan, makes
    another linker of the class with options of its own.
    """

    class ClockedLinker(machine):  # type: ignore[misc]
        """A machine in Python whose thunks leave readings."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**dict(options, use_cloop=False))

        def make_vm(self, nodes: Any, thunks: Any, *rest: Any, **more: Any) -> Any:
            """The machine, around thunks that are read."""
            clocked = [_clocked(node, run, library, readings) for node, run in zip(nodes, thunks)]
            return super().make_vm(nodes, clocked, *rest, **more)

    return ClockedLinker()


def _clocked(node: Any, thunk: Any, library: str, readings: Readings) -> Any:
    name = "{}::{}".format(library, node.op)
    clock, keep = time.perf_counter_ns, readings.append
    is_product = type(node.op).__name__ in PRODUCTS
    args: Optional[Dict[str, Any]] = None

    def run() -> Any:
        nonlocal args
        if is_product and args is None:
            args = {
                "Input Dims": [list(np.shape(cell[0])) for cell in thunk.inputs],
                "Input type": [str(each.type.dtype) for each in node.inputs],
            }
        start_ns = clock()
        answer = thunk()
        keep(("cpu_op", name, start_ns, clock(), args))
        return answer

    run.__dict__.update(thunk.__dict__)
    return run
