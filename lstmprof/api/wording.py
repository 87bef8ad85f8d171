"""Rewrite error messages for Python: ``--across threads`` becomes ``across=["threads"]``.

``in_python`` replaces options by API arguments in errors that the API raises, but no options in
whole commands, such as ``lstmprof list --all``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lstmprof.base.errors import LstmprofError
from lstmprof.base.names import CONDITIONS
from lstmprof.capture.request import MODES, PRECISIONS, PROFILERS, SAMPLERS, CaptureRequest
from lstmprof.workloads import GATES, LOSSES, OVERRIDABLE

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")

#: Option → argument, if the argument's name is not the option's name with underscores.
_RENAMED = {
    "impl": "implementation",
    "with": "packages",
    "timeout": "timeout_s",
    "timing-seconds": "timing_s",
    "sampler-seconds": "sampler_s",
}
#: Option that takes no value → value of the API argument: ``--force`` → True.
_SWITCHES = {
    **dict.fromkeys(("force", "quick", "cuda-graph", "xla", "anomaly", "deterministic"), True),
    **dict.fromkeys(("keep-denormals", "variable-length", "bidirectional"), True),
    **dict.fromkeys(("no-onednn", "no-peaks"), False),
}
_ARGUMENTS = {
    *(field.name for field in dataclasses.fields(CaptureRequest)),
    *OVERRIDABLE,
    *("workload", "rounds", "name", "out", "era", "packages", "implementation"),
    *("across", "rank", "device", "step_range", "fail_if"),
    *("rows", "columns", "value", "like", "minutes"),
}
#: Words that are an option's value in messages: ``train`` in ``--mode train``. Others are prose.
_VALUES = (
    *(*CONDITIONS, *MODES, *PRECISIONS, *PROFILERS, *SAMPLERS, *GATES, *LOSSES),
    *("cpu", "cuda"),
)
_COMMAND = r"\blstmprof [a-z][^;,)`]*"
_ACROSS = rf"--across (?:{'|'.join(CONDITIONS)})(?: --across \w+)*"
_VALUE = rf"'[^']*'|\d[\w.]*|(?:{'|'.join(_VALUES)})(?![\w-])"
_OPTION = rf"(?<![\w-])--(?P<name>[a-z]+(?:-[a-z]+)*)(?: (?P<value>{_VALUE}))?"
_PART = re.compile(rf"(?P<command>{_COMMAND})|(?P<across>{_ACROSS})(?![\w-])|{_OPTION}|(?<!\S)-o\b")


def with_arguments(text: str) -> str:
    """Replace each command-line option in ``text`` by the API argument with the same effect."""
    return _PART.sub(_argument, text)


def _argument(part: re.Match[str]) -> str:
    if part["command"]:
        return part[0]
    if part["across"]:
        names = [f'"{word}"' for word in part[0].split() if word != "--across"]
        return f"across=[{', '.join(names)}]"
    option, value = part["name"] or "out", part["value"]
    if option in _SWITCHES:
        return f"{option.removeprefix('no-').replace('-', '_')}={_SWITCHES[option]}"
    argument = _RENAMED.get(option, option.replace("-", "_"))
    if argument not in _ARGUMENTS:
        return part[0]
    if value is None:
        return argument
    word = value.strip("'")
    return f"{argument}={word}" if word.isdecimal() else f'{argument}="{word}"'


def in_python(function: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Wrap ``function`` so that its errors name API arguments instead of command-line options."""

    @functools.wraps(function)
    def call(*given: _Given.args, **named: _Given.kwargs) -> _Returned:
        try:
            return function(*given, **named)
        except LstmprofError as error:
            error.reword(with_arguments)
            raise

    return call
