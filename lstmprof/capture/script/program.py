"""Execute a script or module as ``python`` or ``python -m`` does.

lstmprof decorates the step function that the user names (``--step-function``) in the script's
syntax tree, which keeps all line numbers.
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
from typing import Any, List, NoReturn, Optional, Tuple

from lstmprof.capture.request import ScriptRequest
from lstmprof.capture.script.steps import Steps

#: Name of the decorator that lstmprof adds to the script's step function.
DECORATOR = "__lstmprof_step__"


def run(request: ScriptRequest, steps: Steps) -> None:
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
        trace = error.__traceback__
        error.__traceback__ = trace and trace.tb_next  # leave out the frame of this function
        _end_by(error)


def _end_by(error: BaseException) -> NoReturn:
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt) and os.name == "posix":
        atexit._run_exitfuncs()  # as Python does before it kills itself
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        # exit here if this is a container's first process, which ignores the signal
        raise SystemExit(128 + signal.SIGINT) from None
    raise SystemExit(1) from None


def _code(request: ScriptRequest, steps: Steps, module: types.ModuleType) -> Any:
    """Return the compiled script, its step function decorated; set ``sys.argv``."""
    place, source, code = (_run_module if request.module else _run_file)(request.target, module)
    module.__dict__["__file__"] = place
    sys.argv = [place if request.module else request.target, *request.arguments]
    elsewhere, name = split_step_function(request.step_function)
    marked = name if elsewhere is None else None
    if marked is None and code is not None:
        return code
    tree = ast.parse(source, place)
    if marked is not None:
        steps.functions += mark(tree, marked)
        module.__dict__[DECORATOR] = functools.partial(Marked, steps)
    return compile(tree, place, "exec", dont_inherit=True)


def _run_file(path: str, module: types.ModuleType) -> Tuple[str, Any, Any]:
    _look_in(os.path.dirname(os.path.realpath(path)))
    path = os.path.abspath(path) if sys.version_info >= (3, 9) else path
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(__loader__=loader, __cached__=None)
    with open(path, "rb") as file:
        return path, file.read(), None


def _look_in(folder: str) -> None:
    """Put a folder first in ``sys.path``, unless Python runs in safe-path mode."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def _run_module(name: str, module: types.ModuleType) -> Tuple[str, Any, Any]:
    _look_in(os.getcwd())  # before the module is looked for
    spec = _spec_of(name)
    module.__dict__.update(__spec__=spec, __package__=spec.parent, __loader__=spec.loader)
    return spec.origin or name, spec.loader.get_source(spec.name), spec.loader.get_code(spec.name)


def _spec_of(name: str) -> Any:
    """Find the module that ``python -m name`` runs."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(name + ".__main__")
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ImportError("No module named {}".format(name))
    return spec


def split_step_function(step_function: Optional[str]) -> Tuple[Optional[str], Optional[str]]:
    """Split ``module:name``; the module is None for the script itself."""
    if not step_function:
        return None, None
    place, _, name = step_function.rpartition(":")
    return (None if place in ("", "__main__") else place), name


def mark(tree: ast.AST, name: str) -> int:
    """Decorate the script's functions of this name; return how many there are."""
    outer, _, last = name.rpartition(".")  # ``a.b``: function ``b`` in class or function ``a``
    number = 0
    for scope in _scopes(tree, outer.split(".") if outer else []):
        for node in ast.walk(scope):
            if isinstance(node, ast.FunctionDef) and node.name == last:
                decorator = ast.Name(DECORATOR, ast.Load())
                first = node.decorator_list[0] if node.decorator_list else node
                node.decorator_list.insert(0, ast.copy_location(decorator, first))
                number += 1
    return number


def _scopes(tree: ast.AST, names: List[str]) -> List[ast.AST]:
    scopes = [tree]
    for name in names:
        scopes = [
            node
            for scope in scopes
            for node in ast.walk(scope)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name
        ]
    return scopes


def mark_attribute(module: Any, name: str, steps: Any) -> int:
    """Mark each call of a module's function as a step.

    Return 1 if the function exists, else 0.
    """
    outer, _, last = name.rpartition(".")
    place = module
    for part in outer.split(".") if outer else []:
        place = getattr(place, part, None)
    function = vars(place).get(last) if place is not None else None
    if not callable(function):
        return 0
    setattr(place, last, Marked(steps, function))
    return 1


class WatchedCallable:
    """A wrapper that behaves like the wrapped callable."""

    def __init__(self, function: Any) -> None:
        own = self.__dict__
        own["__wrapped__"] = function
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(function, name):
                own[name] = getattr(function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["__wrapped__"](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["__wrapped__"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["__wrapped__"], name, value)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


class Marked(WatchedCallable):
    """A wrapped function whose calls are the steps."""

    def __init__(self, steps: Any, function: Any) -> None:
        super().__init__(function)
        self.__dict__["_steps"] = steps

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        steps = self.__dict__["_steps"]
        steps.begins("function")
        result = self.__dict__["__wrapped__"](*args, **kwargs)
        steps.ends("function", outcome=result, follows=False)
        return result
