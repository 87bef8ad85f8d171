"""Report which functions torch.compile compiled again, and which guard had failed.

torch.compile compiles a function again if a guard fails: a condition on an argument, a global or an
attribute. PyTorch keeps the guards that failed, whether or not it logs them, so reading them costs
nothing. Source: torch/_dynamo/guards.py (``get_guard_fail_reason``, since PyTorch 2.1).
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any, Dict, List, Optional

#: Number of functions that are reported.
_MOST_FUNCTIONS = 20
#: Number of characters of a guard or value that are kept.
_MOST_TEXT = 80
#: ``0/3: `` before a reason: the version of the function whose guard failed, counted from 0. Older
#: PyTorch writes no version.
_VERSION = re.compile(r"(?:!\d+/)?\d+/(?P<version>\d+)(?:_\d+)?: ")
#: The comment behind a guard: the line of Python that needs it.
_COMMENT = re.compile(r"(?:,\s*type=<class '[^']*'>)?\s+# .*")
#: Older PyTorch writes ``L['x']`` for the local and ``G['x']`` for the global variable ``x``.
_SCOPE = re.compile(r"\b[LG]\['(\w+)'\]")
#: Dynamo compiles the rest of a function as a function of its own if it cannot compile all of it.
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_\d+")
#: Forms of a failed guard, in words of ``runs.fields.Recompiled``. The first that matches counts.
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
    """Return an entry of run.json's ``recompiled`` per function that was compiled again.

    Return None if there is none, or if this PyTorch keeps no reasons.
    """
    entries = []
    with contextlib.suppress(Exception):  # another version of PyTorch
        utils, config = (sys.modules["torch._dynamo." + name] for name in ("utils", "config"))
        # PyTorch 2.5 and older: cache_size_limit
        limit = getattr(config, "recompile_limit", None) or config.cache_size_limit
        for code, reasons in list(utils.guard_failures.items())[-_MOST_FUNCTIONS:]:
            entries.append(_entry(code, list(reasons), limit))
    return entries or None


def _entry(code: Any, reasons: List[str], limit: int) -> Dict[str, Any]:
    """Return the entry of a function: why its latest version did not fit a call.

    For each compilation, PyTorch appends one reason per version that did not fit.
    """
    name = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
    resumed = _RESUMED.fullmatch(name)
    entry = {"function": resumed.group("name") if resumed else name}  # type: Dict[str, Any]
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
    """Return what changed, in words of ``runs.fields.Recompiled``, from PyTorch's reason."""
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
