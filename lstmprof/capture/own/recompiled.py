"""Report which functions were compiled again, and why.

An example for run.json: ``{"function": "step", "changed": "shape", "argument": "x", …}``. PyTorch
stores why torch.compile recompiled. For ``jax.jit`` and ``tf.function``, lstmprof compares the
arguments of calls. Source: torch/_dynamo/guards.py (``get_guard_fail_reason``, since PyTorch 2.1).
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

_MOST_FUNCTIONS = 20
_MOST_TEXT = 80
#: Types of Python values to show as text in a report.
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class _Leaf(NamedTuple):
    """Texts that describe one array or Python value inside an argument."""

    shape: str
    dtype: str
    value: str


class Call(NamedTuple):
    function: Any
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    static: Tuple[Any, ...] = ()  # names and positions of static arguments


#: Name of an argument -> arrays and values that the argument contains.
_Signature = Dict[str, List[_Leaf]]


class Recompilations:
    """Records which functions were compiled again, and why, for run.json."""

    def __init__(
        self,
        facts: Dict[str, Any],
        leaves: Callable[[Any], Iterable[Any]],  # flattens an argument into arrays and values
        count: Callable[[Any], int],  # how often a function was compiled
        every_value: bool,  # any new Python value compiles again (TensorFlow)
    ) -> None:
        self._facts, self._leaves, self._count = facts, leaves, count
        self._every_value = every_value
        self._signatures: Dict[str, _Signature] = {}

    def count(self, function: Any) -> Optional[int]:
        try:
            return self._count(function)
        except Exception:  # another version of the framework
            return None

    def called(self, title: str, call: Call, before: Optional[int]) -> None:
        """Record a recompilation if this call compiled its function again."""
        after = self.count(call.function)
        if before is None or after is None or after <= before:
            return
        # look up by name and line, because a script may create the function object repeatedly
        before_change = self._signatures.get(title)
        if before_change is None and len(self._signatures) >= _MOST_FUNCTIONS:
            return
        signature = self._signatures[title] = self._signature(call)
        if before_change is None:
            return
        change = {"changed": "function"} if before == 0 else changed(before_change, signature)
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
    """Return the first difference between two calls: ``{"changed": "shape", …}``."""
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
    try:
        function = getattr(call.function, "python_function", call.function)  # inside a tf.function
        return dict(inspect.signature(function).bind(*call.args, **call.kwargs).arguments)
    except (TypeError, ValueError):
        numbers = {"argument {}".format(number + 1): arg for number, arg in enumerate(call.args)}
        return dict(numbers, **call.kwargs)


#: Prefix of a reason for recompiling: ``0/3: `` if a guard of compiled version 3 failed.
_VERSION = re.compile(r"(?:!\d+/)?\d+/(?P<version>\d+)(?:_\d+)?: ")
#: Pattern of the comment after a guard, which quotes the line of Python that needs the guard.
_COMMENT = re.compile(r"(?:,\s*type=<class '[^']*'>)?\s+# .*")
#: Scope in a guard: older PyTorch writes ``L['x']`` for a local, ``G['x']`` for a global name.
_SCOPE = re.compile(r"\b[LG]\['(\w+)'\]")
#: Dynamo's name for the rest of a function that Dynamo cannot compile as a whole.
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_\d+")
#: Pairs (what changed, pattern of the failed guard); groups are fields of ``Recompiled``.
_FORMS = tuple(
    (changed, re.compile(pattern))
    for changed, pattern in (
        (
            None,
            r"tensor '(?P<argument>.+)' (?P<changed>size|rank|stride|dtype) mismatch"
            r"(?: at index (?P<index>\d+))?\. expected (?P<before>.+), actual (?P<after>.+)",
        ),
        (
            "size",
            r"(?:\d+ <= )?(?P<argument>\S+)\.size\(\)\[(?P<index>\d+)\](?: == (?P<before>\d+))?",
        ),
        ("length", r"len\((?P<argument>\S+)\) == (?P<before>\d+)"),
        ("type", r"___check_type_id\((?P<argument>[^,]+), .*"),
        ("object", r"___check_obj_id\((?P<argument>[^,]+), .*"),
        ("value", r"(?P<argument>\S+) (?:==|is) (?P<before>.+)"),
        ("function", r"BACKEND_MATCH failure.*|.*\bgot deallocated"),
    )
)


def recompiled_by_torch() -> Optional[List[Dict[str, Any]]]:
    """Return the functions that torch.compile compiled again, for run.json."""
    entries = []
    with contextlib.suppress(Exception):  # another version of PyTorch
        utils, config = (sys.modules["torch._dynamo." + name] for name in ("utils", "config"))
        # ``cache_size_limit`` is the limit's name until PyTorch 2.5
        limit = getattr(config, "recompile_limit", None) or config.cache_size_limit
        for code, reasons in list(utils.guard_failures.items())[-_MOST_FUNCTIONS:]:
            entries.append(_entry(code, list(reasons), limit))
    return entries or None


def _entry(code: Any, reasons: List[str], limit: int) -> Dict[str, Any]:
    """Describe for run.json why and how often a function was compiled again."""
    name = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
    resumed = _RESUMED.fullmatch(name)
    entry = {"function": resumed.group("name") if resumed else name}  # type: Dict[str, Any]
    # read the numbers of compiled versions that did not fit; PyTorch allows ``limit`` versions
    marks = [_VERSION.match(reason) for reason in reasons]
    versions = [int(mark.group("version")) for mark in marks if mark is not None][::-1]
    if len(versions) < len(reasons):
        return dict(change_of(reasons[-1]), **entry)
    repeats = (n for n, version in enumerate(versions) if version in versions[:n])
    gave_up = next(repeats, len(versions)) >= limit
    entry["times"] = limit - 1 if gave_up else max(versions) + 1
    entry["limit"] = limit if gave_up else None
    latest = reasons[-1 - versions.index(max(versions))]
    return dict(change_of(_VERSION.sub("", latest, 1)), **entry)


def change_of(reason: str) -> Dict[str, Any]:
    """Parse why PyTorch recompiled: ``len(x) == 3`` -> ``{"changed": "length", …}``."""
    guard = _SCOPE.sub(r"\1", _COMMENT.sub("", reason.strip().partition("\n")[0]))
    for changed, form in _FORMS:
        match = form.fullmatch(guard)
        if match is not None:
            parts = {name: text[:_MOST_TEXT] for name, text in match.groupdict().items() if text}
            index = parts.pop("index", None)
            if index is not None:
                parts["argument"] = "dimension {} of {}".format(index, parts["argument"])
            return parts if changed is None else dict(parts, changed=changed)
    return {"changed": "guard", "before": guard[:_MOST_TEXT]}
