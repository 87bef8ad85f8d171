"""The systems of the studies that no row runs: why, and what would have to change.

Looked for on PyPI and in Debian 12 in 2026-11, on x86-64; CNTK was installed and trained.
"""

from __future__ import annotations

import dataclasses
from typing import Tuple


@dataclasses.dataclass(frozen=True)
class System:
    """A system that lstmprof does not run; ``why`` and ``needs`` in words that a user is shown."""

    name: str
    why: str
    needs: str


NOT_RUN: Tuple[System, ...] = (
    System(
        "CNTK 2.7",
        "its last wheels are for Python 3.6, and lstmprof needs 3.7; its profiler records three "
        "ranges per minibatch and no operators",
        "support for Python 3.6, and the libraries of OpenMPI 3 (libmpi.so.12, libmpi_cxx.so.1)",
    ),
    System(
        "PyTorch 0.1 to 0.4",
        "the oldest PyTorch on PyPI is 1.0.0",
        "wheels from another source, and support for their older APIs",
    ),
    System(
        "TensorFlow 1.0 to 1.12",
        "its last wheels are for Python 3.6, and lstmprof needs 3.7; 1.13 to 1.15 have the "
        "same cells",
        "support for Python 3.6",
    ),
    System(
        "Lasagne 0.2",
        "it was never released; PyPI has 0.1, whose peephole equations differ",
        "its source code from another place",
    ),
    System(
        "Keras and TensorFlow in R",
        "their packages are on CRAN but not in Debian; they call Keras in Python, so "
        "keras-lstm runs "
        "the same kernels",
        "an R with both packages, and a worker that runs R",
    ),
    System(
        "MXNet in R",
        "its package was in MXNet's own repository, and is neither in Debian nor on PyPI; "
        "mxnet-module-lstm runs the same operators",
        "an R with the package, and a worker that runs R",
    ),
    System(
        "Knet (Julia)",
        "Debian 12 has no Julia, and the PyPI package downloads it from another place",
        "a Julia with Knet, and a worker written in Julia",
    ),
    System(
        "Torch7 (Lua)",
        "Debian has LuaJIT but no Torch, and the PyPI package needs an installed Torch",
        "a Torch7 built from source, and a worker written in Lua",
    ),
)
