"""Note which functions of a script are compiled again, and what had changed.

``jax.jit`` and ``tf.function`` compile a function once per combination of the shapes, dtypes and
Python values that it is called with, and once per function object.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

#: Number of functions whose compilations are noted.
_MOST_FUNCTIONS = 20
#: Number of characters of a value that are noted.
_MOST_TEXT = 80
#: Types of Python values whose text says what changed.
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class _Leaf(NamedTuple):
    """An array or value in an argument: the texts of its shape, dtype and Python value, if any."""

    shape: str
    dtype: str
    value: str


class Call(NamedTuple):
    """A call of the compiled ``function``; ``static``: names and positions of static arguments."""

    function: Any
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    static: Tuple[Any, ...] = ()


#: Name of an argument -> the arrays and values in it.
_Signature = Dict[str, List[_Leaf]]


class Recompilations:
    """The compiled functions that are compiled again; ``facts["recompiled"]`` describes them.

    Args:
        facts: facts for run.json.
        leaves: returns the arrays and values in an argument, at any nesting.
        count: returns how often a function object was compiled.
        every_value: whether each new Python value compiles a function again (TensorFlow). If not,
            only values of static arguments do (JAX).
    """

    def __init__(
        self,
        facts: Dict[str, Any],
        leaves: Callable[[Any], Iterable[Any]],
        count: Callable[[Any], int],
        every_value: bool,
    ) -> None:
        self._facts, self._leaves, self._count = facts, leaves, count
        self._every_value = every_value
        self._signatures: Dict[str, _Signature] = {}

    def count(self, function: Any) -> Optional[int]:
        """Return how often ``function`` was compiled; None if it does not tell."""
        try:
            return self._count(function)
        except Exception:  # another version of the framework
            return None

    def called(self, title: str, call: Call, before: Optional[int]) -> None:
        """Note a call of a function that had been compiled ``before`` times.

        ``title`` names the function and where it is defined, so it stays the same if the script
        creates the function anew.
        """
        after = self.count(call.function)
        if before is None or after is None or after <= before:
            return
        known = self._signatures.get(title)
        if known is None and len(self._signatures) >= _MOST_FUNCTIONS:
            return
        now = self._signatures[title] = self._signature(call)
        if known is None:
            return
        change = {"changed": "function"} if before == 0 else changed(known, now)
        if change is not None:
            self._note(title, change)

    def _note(self, title: str, change: Dict[str, Any]) -> None:
        noted = self._facts.setdefault("recompiled", [])
        name = title.partition(" (")[0].rpartition(".")[2]
        entry = next((each for each in noted if each["function"] == name), None)
        if entry is None:
            entry = {"function": name, "times": 0}
            noted.append(entry)
        times = entry["times"] + 1
        entry.clear()
        entry.update(change, function=name, times=times)

    def _signature(self, call: Call) -> _Signature:
        arguments = _by_name(call)
        static = [
            *(name for name in call.static if isinstance(name, str)),
            *(list(arguments)[n] for n in call.static if n in range(len(arguments))),
        ]
        return {
            name: [self._leaf(leaf, name in static) for leaf in self._leaves(value)]
            for name, value in arguments.items()
        }

    def _leaf(self, leaf: Any, static: bool) -> _Leaf:
        shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        if shape is not None and dtype is not None and not static:
            return _Leaf(str(tuple(shape)), getattr(dtype, "name", str(dtype)), "")
        tells = isinstance(leaf, _PLAIN) and (static or self._every_value)
        return _Leaf("", type(leaf).__name__, repr(leaf)[:_MOST_TEXT] if tells else "")


def changed(before: _Signature, after: _Signature) -> Optional[Dict[str, Any]]:
    """Return the first difference of two calls, or None if they are alike.

    A shape comes first, then a dtype, a Python value, and the number of arrays in an argument.
    """
    pairs = [(name, before[name], after[name]) for name in after if name in before]
    for place, kind in enumerate(_Leaf._fields):
        for name, old, new in pairs:
            for one, other in zip(old, new):
                if one[place] != other[place]:
                    return {
                        "changed": kind,
                        "argument": name,
                        "before": one[place],
                        "after": other[place],
                    }
    for name, old, new in pairs:
        if len(old) != len(new):
            return {"changed": "structure", "argument": name}
    return None


def _by_name(call: Call) -> Dict[str, Any]:
    """Return the arguments of a call by the names of the parameters, or by their positions."""
    try:
        function = getattr(call.function, "python_function", call.function)  # of a tf.function
        return dict(inspect.signature(function).bind(*call.args, **call.kwargs).arguments)
    except (TypeError, ValueError):
        numbers = {"argument {}".format(number + 1): arg for number, arg in enumerate(call.args)}
        return dict(numbers, **call.kwargs)
