"""A function that a user names as the step, marked where it is defined.

``--step-function train_step`` is of the script itself, ``--step-function package.module:train`` of
a module that it imports. In the script a definition is found by its name, inside other functions
too, and gets one more decorator, in front of its own; line numbers stay.
"""

from __future__ import annotations

import ast
import functools
from typing import Any, List, Optional, Tuple

DECORATOR = "__lstmprof_step__"


def of_main(step_function: Optional[str]) -> Optional[str]:
    """The name of a step function that the script itself defines; None where there is none."""
    place, name = placed(step_function)
    return name if place is None else None


def placed(step_function: Optional[str]) -> Tuple[Optional[str], Optional[str]]:
    """(module, name) of ``module:name``; the module is None of the script itself."""
    if not step_function:
        return None, None
    place, _, name = step_function.rpartition(":")
    return (None if place in ("", "__main__") else place), name


def mark(tree: ast.AST, name: str) -> int:
    """Give the functions called ``name`` in ``tree`` the decorator; how many there are.

    ``a.b`` is the function ``b`` in the class or function ``a``.
    """
    outer, _, last = name.rpartition(".")
    found = 0
    for scope in _scopes(tree, outer.split(".") if outer else []):
        for node in ast.walk(scope):
            if isinstance(node, ast.FunctionDef) and node.name == last:
                decorator = ast.Name(DECORATOR, ast.Load())
                first = node.decorator_list[0] if node.decorator_list else node
                node.decorator_list.insert(0, ast.copy_location(decorator, first))
                found += 1
    return found


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
    """Put a marked function in the place of ``name`` in ``module``; how many there are: 0 or 1."""
    outer, _, last = name.rpartition(".")
    place = module
    for part in outer.split(".") if outer else []:
        place = getattr(place, part, None)
    function = vars(place).get(last) if place is not None else None
    if not callable(function):
        return 0
    setattr(place, last, Marked(steps, function))
    return 1


class Seen:
    """A callable that is another one, looked at from outside: all but its calls is the other's."""

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


class Marked(Seen):
    """A function whose calls are the steps."""

    def __init__(self, steps: Any, function: Any) -> None:
        super().__init__(function)
        self.__dict__["_steps"] = steps

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        steps = self.__dict__["_steps"]
        steps.begins("function")
        result = self.__dict__["__wrapped__"](*args, **kwargs)
        steps.ends("function", outcome=result, follows=False)
        return result
