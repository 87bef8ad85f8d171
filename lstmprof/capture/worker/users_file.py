"""Load a user's file as an implementation, and find the line of the file that failed.

docs/own_code.md describes the file: ``build(workload)``, and optionally ``load(network, weights)``,
``TIME_MAJOR`` and ``FRAMEWORK``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from lstmprof.base.errors import CaptureError, one_line
from lstmprof.capture.implementation_file import ImplementationFile
from lstmprof.capture.request import CaptureRequest
from lstmprof.workloads import Workload

Arrays = Dict[str, Any]
#: Results of one step: loss, outputs in the file's layout, gradients by the file's own names.
Step = Tuple[float, Any, Arrays]

#: Seed for weights that the file's ``build`` initialises itself.
SEED = 0
MEND = "correct the file, and repeat the capture"


class UsersFile:
    """A user's file, with the interface of an implementation."""

    KERNELS = ()

    def __init__(self, file: ImplementationFile, module: Any) -> None:
        self.file, self.module = file, module
        self.TIME_MAJOR = bool(getattr(module, "TIME_MAJOR", False))
        self.claims = callable(getattr(module, "load", None))

    def build(self, workload: Workload) -> Any:
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
        """Seed the framework, so that ``build`` draws the same weights in all processes."""

    def fault(self, network: Any) -> Optional[str]:
        """Return what is wrong with the network, such as ``a tuple, not …``."""
        return None

    def load(self, network: Any, weights: Mapping[str, Any]) -> None:
        if self.claims:
            self.module.load(network, weights)

    def parameters(self, network: Any) -> Arrays:
        """Return the trainable variables by name."""
        raise NotImplementedError

    def values(self, network: Any) -> Arrays:
        """Return the variables by name, as NumPy arrays."""
        raise NotImplementedError

    def first_step(self, network: Any, workload: Workload, batch: Any, device: str) -> Step:
        """Return loss, outputs and gradients; inputs and outputs have the file's layout."""
        raise NotImplementedError

    def checked(self, loss_of: Callable[..., Any]) -> Callable[..., Any]:
        """Add a check of the outputs' shape to a loss function."""

        def loss_of_outputs(workload: Workload, outputs: Any, *others: Any, **named: Any) -> Any:
            self.refuse_unless_shaped(workload, outputs)
            return loss_of(workload, outputs, *others, **named)

        return loss_of_outputs

    def refuse_unless_shaped(self, workload: Workload, outputs: Any) -> None:
        expected, words = self._expected_shape(workload)
        shape = getattr(outputs, "shape", None)
        if shape is None or tuple(shape) != expected:
            what = "a " + type(outputs).__name__ if shape is None else str(tuple(shape))
            raise CaptureError(
                "{}: the network returned {}, not outputs {} = {}".format(
                    self.file.file_name, what, words, expected
                ),
                self._advice(workload, shape),
            )

    def _advice(self, workload: Workload, shape: Optional[Any]) -> str:
        """Return what the user can change if the outputs have a wrong shape."""
        place = workload.time_steps, workload.batch
        begins = () if shape is None else tuple(shape)[:2]
        # find out whether the outputs have time and batch in the wrong order
        turned = begins == (place[::-1] if self.TIME_MAJOR else place)
        if workload.every_step:
            mistaken = turned
        else:
            mistaken = not self.TIME_MAJOR and begins[:1] == place[:1] and place[0] != place[1]
        words = "set TIME_MAJOR = {} in the file".format(not self.TIME_MAJOR)
        return words if mistaken else MEND

    def _expected_shape(self, workload: Workload) -> Tuple[Tuple[int, ...], str]:
        if not workload.every_step:
            return (workload.batch, workload.classes), "(batch, classes)"
        if self.TIME_MAJOR:
            sizes = workload.time_steps, workload.batch, workload.classes
            return sizes, "(time, batch, classes)"
        sizes = workload.batch, workload.time_steps, workload.classes
        return sizes, "(batch, time, classes)"


def implementation_of(request: CaptureRequest) -> Any:
    """Return a built-in implementation's module, or the user's file."""
    if request.file is None:
        return importlib.import_module(request.row.module)
    name = "lstmprof_users_{}_{}".format(request.file.name, request.file.sha256[:8])
    module = sys.modules.get(name) or _loaded(request.file, name)
    own = importlib.import_module("lstmprof.capture.worker.loops." + request.file.framework)
    return own.File(request.file, module)


def _loaded(file: ImplementationFile, name: str) -> Any:
    """Execute the file, which can import modules from its own folder."""
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
            "{}: importing it ends the process".format(file_and_line(end, file)),
            'move the script part under if __name__ == "__main__"',
        ) from end
    finally:
        sys.argv = arguments
    if not callable(getattr(module, file.function, None)):
        raise CaptureError(
            "{}: has no function {}(workload)".format(file.file_name, file.function), MEND
        )
    return module


def file_and_line(error: BaseException, file: ImplementationFile) -> str:
    """Return the file's line that led to an error: ``mymodel.py:31 in forward``."""
    frames = traceback.extract_tb(error.__traceback__)
    within = [f for f in frames if os.path.abspath(f.filename) == file.path]
    if isinstance(error, SyntaxError) and error.filename == file.path:
        return "{}:{}".format(file.file_name, error.lineno)
    if not within:
        return file.file_name
    line = "{}:{}".format(file.file_name, within[-1].lineno)
    return line if within[-1].name == "<module>" else "{} in {}".format(line, within[-1].name)


def explained(error: Exception, file: ImplementationFile) -> List[str]:
    """Return two texts: the error with its place in the file, and what to do."""
    words = next((line for line in str(error).splitlines() if line.strip()), "")
    where = file_and_line(error, file)
    if isinstance(error, ModuleNotFoundError) and error.name:
        fault = "{}: {} is not installed in {}".format(where, error.name, sys.executable)
        return [fault, "install it there, or choose another interpreter with --python"]
    return ["{}: {}: {}".format(where, type(error).__name__, one_line(words)), MEND]
