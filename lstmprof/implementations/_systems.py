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
        "its wheels end with Python 3.6, and a worker needs 3.7; its profiler records three ranges "
        "a minibatch and no operators",
        "a worker for Python 3.6, and the libraries of OpenMPI 3 (libmpi.so.12, libmpi_cxx.so.1)",
    ),
    System(
        "PyTorch 0.1 to 0.4",
        "the oldest PyTorch that PyPI installs is 1.0.0",
        "wheels of it from elsewhere, and guards for what these lack",
    ),
    System(
        "TensorFlow 1.0 to 1.12",
        "its wheels end with Python 3.6, and a worker needs 3.7; 1.13 to 1.15 have the same cells",
        "a worker for Python 3.6",
    ),
    System(
        "Lasagne 0.2",
        "it was never released: PyPI has 0.1, whose peepholes are another equation",
        "its source from elsewhere",
    ),
    System(
        "Keras and TensorFlow in R",
        "their packages are on CRAN, and Debian has neither; they call Keras in Python, whose "
        "kernels keras-lstm runs",
        "an R with both, and a worker that drives it",
    ),
    System(
        "MXNet in R",
        "it was in a repository of MXNet's own, and is neither Debian's nor PyPI's",
        "an R that has it, and a worker that drives it; mxnet-module-lstm runs the same operators",
    ),
    System(
        "Knet (Julia)",
        "Debian 12 has no Julia, and what PyPI has downloads it from elsewhere",
        "a Julia with Knet, and a worker in Julia that takes a request and writes its result",
    ),
    System(
        "Torch7 (Lua)",
        "Debian has LuaJIT and no Torch, and PyPI a bridge that needs one",
        "a Torch7 built from source, and a worker in Lua",
    ),
)
