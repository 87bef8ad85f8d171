"""A file of the user's as an implementation: loaded, given what it leaves out, its errors placed.

The file has

``build(workload)``
    the network: a ``torch.nn.Module``; of TensorFlow a ``tf.Module`` or a Keras model; of JAX a
    pair of its parameters, any tree of arrays, and a function of parameters and inputs. Called
    with inputs, and with the lengths (batch,) for a workload of variable length, it returns the
    outputs: (batch, classes), or one a time step (``Workload.every_step``)
``load(network, weights)``, if it likes
    sets the shared weights (names and layout of ``workloads.parameter_shapes``), of JAX it returns
    the parameters; a file that has it claims to compute the workload, which ``held_file`` checks
``TIME_MAJOR``, if it likes
    whether inputs and outputs of every step are (time, batch, …); by default (batch, time, …)
``FRAMEWORK``, if it likes
    torch, tensorflow or jax, where the imports do not tell

No loss, loop, timing or optimizer: those are the same for all.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from lstmprof.capture.implementation_file import ImplementationFile
from lstmprof.capture.request import CaptureRequest
from lstmprof.errors import CaptureError, one_line
from lstmprof.workloads import Workload

Arrays = Dict[str, Any]
#: Loss, outputs with time in front where every step has one, and gradients by own name
Step = Tuple[float, Any, Arrays]

#: Of every network that ``build`` draws weights for by itself
SEED = 0
MEND = "correct the file, and repeat the capture"


class UsersFile:
    """The file, as the loops take an implementation; a framework's own in the module called so."""

    KERNELS = ()

    def __init__(self, file: ImplementationFile, module: Any) -> None:
        self.file, self.module = file, module
        self.TIME_MAJOR = bool(getattr(module, "TIME_MAJOR", False))
        self.claims = callable(getattr(module, "load", None))

    def build(self, workload: Workload) -> Any:
        """The network of ``workload``.

        Raises:
            CaptureError: what the function returns is none.
        """
        self.seed()
        network = getattr(self.module, self.file.function)(workload)
        fault = self.fault(network)
        if fault:
            raise CaptureError(
                "{}: {}() returned {}".format(self.file.file_name, self.file.function, fault),
                MEND,
            )
        return network

    def seed(self) -> None:
        """Make the weights that ``build`` draws the same in every process."""

    def fault(self, network: Any) -> Optional[str]:
        """``a tuple, not …`` where ``network`` is none that the loop can train."""
        return None

    def load(self, network: Any, weights: Mapping[str, Any]) -> None:
        """Set the shared weights, where the file does so."""
        if self.claims:
            self.module.load(network, weights)

    def parameters(self, network: Any) -> Arrays:
        """Own name -> trainable variable."""
        raise NotImplementedError

    def values(self, network: Any) -> Arrays:
        """Own name -> NumPy array of each of them."""
        raise NotImplementedError

    def first_step(self, network: Any, workload: Workload, batch: Any, device: str) -> Step:
        """What the loop's first step computes, without its optimizer; inputs in own layout."""
        raise NotImplementedError

    def checked(self, loss_of: Callable[..., Any]) -> Callable[..., Any]:
        """``loss_of(workload, outputs, …)``, which refuses outputs of another shape."""

        def of_outputs(workload: Workload, outputs: Any, *others: Any, **named: Any) -> Any:
            self.refuse_unless_shaped(workload, outputs)
            return loss_of(workload, outputs, *others, **named)

        return of_outputs

    def refuse_unless_shaped(self, workload: Workload, outputs: Any) -> None:
        """Raise CaptureError where the outputs are none of ``workload``."""
        due, words = self._due(workload)
        shape = getattr(outputs, "shape", None)
        if shape is None or tuple(shape) != due:
            what = "a " + type(outputs).__name__ if shape is None else str(tuple(shape))
            raise CaptureError(
                "{}: the network returned {}, not outputs {} = {}".format(
                    self.file.file_name, what, words, due
                ),
                self._advice(workload, shape),
            )

    def _advice(self, workload: Workload, shape: Optional[Any]) -> str:
        """To say how its inputs lie, where time stands in front of the outputs or the wrong way."""
        place = workload.time_steps, workload.batch
        begins = () if shape is None else tuple(shape)[:2]
        turned = begins == (place[::-1] if self.TIME_MAJOR else place)
        if workload.every_step:
            mistaken = turned
        else:
            mistaken = not self.TIME_MAJOR and begins[:1] == place[:1] and place[0] != place[1]
        words = "set TIME_MAJOR = {} in the file".format(not self.TIME_MAJOR)
        return words if mistaken else MEND

    def _due(self, workload: Workload) -> Tuple[Tuple[int, ...], str]:
        if not workload.every_step:
            return (workload.batch, workload.classes), "(batch, classes)"
        if self.TIME_MAJOR:
            sizes = workload.time_steps, workload.batch, workload.classes
            return sizes, "(time, batch, classes)"
        sizes = workload.batch, workload.time_steps, workload.classes
        return sizes, "(batch, time, classes)"


def implementation_of(request: CaptureRequest) -> Any:
    """The file of the request's row, or of the user's; loaded once."""
    if request.file is None:
        return importlib.import_module(request.row.module)
    name = "lstmprof_users_{}_{}".format(request.file.name, request.file.sha256[:8])
    module = sys.modules.get(name) or _loaded(request.file, name)
    own = importlib.import_module("lstmprof.capture.worker.loops." + request.file.framework)
    return own.File(request.file, module)


def _loaded(file: ImplementationFile, name: str) -> Any:
    """The module of a file, beside which it finds its own modules, as a script does.

    Raises:
        CaptureError: it is not what was asked for, or ends the process.
    """
    with open(file.path, "rb") as content:
        if hashlib.sha256(content.read()).hexdigest() != file.sha256:
            raise CaptureError(
                "{} changed during the capture".format(file.file_name), "repeat the capture"
            )
    sys.path.insert(0, os.path.dirname(file.path))
    arguments, sys.argv = sys.argv, [file.path]
    spec: Any = importlib.util.spec_from_file_location(name, file.path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as end:
        raise CaptureError(
            "{}: importing it ends the process".format(place(end, file)),
            'move the script part under if __name__ == "__main__"',
        ) from end
    finally:
        sys.argv = arguments
    if not callable(getattr(module, file.function, None)):
        raise CaptureError(
            "{}: has no function {}(workload)".format(file.file_name, file.function), MEND
        )
    return module


def place(error: BaseException, file: ImplementationFile) -> str:
    """``mymodel.py:31 in forward``: the innermost line of the file that led to ``error``."""
    frames = traceback.extract_tb(error.__traceback__)
    within = [f for f in frames if os.path.abspath(f.filename) == file.path]
    if isinstance(error, SyntaxError) and error.filename == file.path:
        return "{}:{}".format(file.file_name, error.lineno)
    if not within:
        return file.file_name
    line = "{}:{}".format(file.file_name, within[-1].lineno)
    return line if within[-1].name == "<module>" else "{} in {}".format(line, within[-1].name)


def explained(error: Exception, file: ImplementationFile) -> List[str]:
    """Fault, with its place in the file, and next step, one line each."""
    words = next((line for line in str(error).splitlines() if line.strip()), "")
    where = place(error, file)
    if isinstance(error, ModuleNotFoundError) and error.name:
        fault = "{}: {} is not installed in {}".format(where, error.name, sys.executable)
        return [fault, "install it there, or choose another interpreter with --python"]
    return ["{}: {}: {}".format(where, type(error).__name__, one_line(words)), MEND]
