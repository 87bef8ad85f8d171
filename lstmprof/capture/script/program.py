"""A script or a module, executed as ``python`` executes it.

What a main program finds is told by the documentation of ``runpy`` and of ``python -m``. A script
that ends by an exception leaves the traceback that it has alone: the frames of this file are taken
off, then ``sys.excepthook`` is called, the script's own where it has set one.
"""

from __future__ import annotations

import ast
import atexit
import functools
import importlib.machinery
import importlib.util
import os
import signal
import sys
import types
from typing import Any, NoReturn, Optional, Tuple

from lstmprof.capture.script import marking
from lstmprof.capture.script.request import ScriptRequest
from lstmprof.capture.script.steps import Steps


def run(request: ScriptRequest, steps: Steps) -> None:
    """Execute the request's target with its arguments.

    Raises:
        SystemExit: what it raised itself, or 1 after its traceback.
    """
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    try:
        code = _code(request, steps, module)
    except (OSError, ImportError, SyntaxError, ValueError) as error:
        error.__traceback__ = None
        _end_by(error)
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    except SystemExit as stop:
        steps.exit_code = stop.code
        raise
    except BaseException as error:
        error.__traceback__ = _without_own(error.__traceback__)
        _end_by(error)


def _end_by(error: BaseException) -> NoReturn:
    """End as Python does by an exception that nobody caught."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt) and os.name == "posix":
        atexit._run_exitfuncs()  # which Python does before it kills itself, too
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(1) from None


def _without_own(trace: Optional[types.TracebackType]) -> Optional[types.TracebackType]:
    """``trace`` without the frame that executes the script."""
    return None if trace is None else trace.tb_next


def _code(request: ScriptRequest, steps: Steps, module: types.ModuleType) -> Any:
    """The target's code; ``module``, ``sys.argv`` and ``sys.path`` are set as it expects them."""
    place, source, code = (_of_module if request.module else _of_file)(request.target, module)
    module.__dict__["__file__"] = place
    sys.argv = [place if request.module else request.target, *request.arguments]
    marked = marking.of_main(request.step_function)
    if marked is None and code is not None:
        return code
    tree = ast.parse(source, place)
    if marked is not None:
        steps.functions += marking.mark(tree, marked)
        module.__dict__[marking.DECORATOR] = functools.partial(marking.Marked, steps)
    return compile(tree, place, "exec", dont_inherit=True)


def _of_file(path: str, module: types.ModuleType) -> Tuple[str, Any, Any]:
    _look_in(os.path.dirname(os.path.realpath(path)))
    path = os.path.abspath(path) if sys.version_info >= (3, 9) else path
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(__loader__=loader, __cached__=None)
    with open(path, "rb") as file:
        return path, file.read(), None


def _look_in(folder: str) -> None:
    """Look for modules in ``folder`` first, unless Python was told to look nowhere unsafe."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def _of_module(name: str, module: types.ModuleType) -> Tuple[str, Any, Any]:
    _look_in(os.getcwd())  # before the module is looked for
    spec = _spec_of(name)
    module.__dict__.update(__spec__=spec, __package__=spec.parent, __loader__=spec.loader)
    return spec.origin or name, spec.loader.get_source(spec.name), spec.loader.get_code(spec.name)


def _spec_of(name: str) -> Any:
    """Where ``python -m name`` finds its code.

    Raises:
        ImportError: it finds none.
    """
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(name + ".__main__")
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ImportError("No module named {}".format(name))
    return spec
