"""The step loop for Theano.

Theano compiles each operator with g++ at its first use: 115 modules for one LSTM layer and Adam, in
2 min 44 s of CPU time. The modules stay in lstmprof's cache. Source: theano/configdefaults.py,
tensor/blas.py 1.0.5.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Dict, Iterator

import numpy as np

from lstmprof.base.errors import CaptureError
from lstmprof.capture.worker.loops import _cpu, symbolic as _symbolic
from lstmprof.runs.directory import cache_folder

#: Environment variable with flags that Theano reads once, at its import.
FLAGS = "THEANO_FLAGS"
device_of, set_threads, product, copy = _cpu.device_of, _cpu.set_threads, _cpu.product, _cpu.copy


def _imported() -> Any:
    """Import Theano, with flags for this process only."""
    given = os.environ.get(FLAGS)
    folder = os.path.abspath(str(cache_folder() / "theano"))
    flags = ["device=cpu", "floatX=float32", "base_compiledir=" + folder]
    # link to NumPy's OpenBLAS, because Theano without BLAS flags may multiply in slow C code
    blas = _cpu.linker_flags(os.path.dirname(os.path.dirname(np.__file__)))
    flags += ["blas.ldflags=" + blas] if blas else []
    # append the user's flags, which override lstmprof's flags
    os.environ[FLAGS] = ",".join(flags + ([given] if given else []))
    try:
        import theano
    finally:
        os.environ.pop(FLAGS)
        os.environ.update({} if given is None else {FLAGS: given})
    if not theano.config.cxx and "cxx=" not in (given or ""):
        raise CaptureError("Theano found no C++ compiler", "install g++")
    return theano


theano = _imported()
tt = theano.tensor


@contextlib.contextmanager
def _clocked(linker: Any) -> Iterator[None]:
    """Make ``linker`` Theano's default, which the layers of Lasagne and Keras use."""
    from theano.compile import mode as modes

    before = modes.get_default_mode()
    # pass the query that selects the optimizer, because Scan changes the query
    modes.instantiated_default_mode = modes.Mode(linker, before.provided_optimizer)
    try:
        yield
    finally:
        modes.instantiated_default_mode = before


LIBRARY = _symbolic.Library(
    name="theano",
    title="Theano",
    package=theano,
    tensor=tt,
    machine=theano.gof.vm.VM_Linker,
    log_softmax=tt.nnet.logsoftmax,
    variable=lambda name, dtype, dimensions: tt.TensorType(dtype, (False,) * dimensions)(name),
    mode=lambda: None,
    clocked=_clocked,
)


class Trainer(_symbolic.Trainer):
    library = LIBRARY

    def settings(self) -> Dict[str, Any]:
        if not theano.config.cxx:
            return {"blas": "NumPy's"}
        libraries = [flag[2:] for flag in theano.config.blas.ldflags.split() if flag[:2] == "-l"]
        return {"blas": ", ".join(libraries) or "none"}

    def facts(self) -> Dict[str, Any]:
        facts = super().facts()
        library = sys.modules.get(self.row.library)
        if library is not None:
            facts["versions"][self.row.library] = getattr(library, "__version__", None)
        return dict(facts, backend="{0.linker}, {0.optimizer}".format(theano.config))
