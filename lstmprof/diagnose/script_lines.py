"""The line of a user's script that makes a bottleneck, in words: ``train.py:31 sleeps …``.

Reads ``script_lines`` of run.json, which ``capture.own.lines`` samples in steps without a profiler.
"""

from __future__ import annotations

import re

from lstmprof.diagnose import causes
from lstmprof.diagnose.findings import Finding
from lstmprof.runs.fields import ScriptLine

#: A line explains a bottleneck if it takes this share of its time. Chosen by hand.
EXPLAINED_SHARE = 0.5
#: Time of the host that no op shows. A call that waits for a value is synchronisation, and only
#: that.
_BESIDE_OPS = (causes.PYTHON, causes.UNRECORDED, causes.INPUT)
_ASKS = re.compile(r"\.(item|tolist|numpy|cpu)|float|int|bool")
_SLEEPS = re.compile(r"time\.sleep")
#: The activity of a call by its name. The first matching row decides.
_ACTIVITIES = (
    (_SLEEPS, "sleeps"),
    (re.compile(r"gc\.collect"), "runs the garbage collector"),
    (re.compile(r"\.(debug|info|warning|error)|logging\..*|(builtins\.)?print"), "logs"),
    (re.compile(r"(os|posix|nt)\.(fsync|fdatasync|sync|write)|.*\.(write|flush)"), "writes a file"),
    (re.compile(r"(io\.)?open|os\.(open|read)|.*\.(read|readline)"), "reads a file"),
    (re.compile(r".*\.(get|put|wait|acquire|join|recv|select)"), "waits"),
    (re.compile(r"subprocess\..*|os\.(system|popen)"), "runs another program"),
    (_ASKS, "asks for values"),
)


def line_of(finding: Finding) -> str:
    """Return the line that takes most of a run's bottleneck, and what it does; empty if none does.

    Examples: ``train.py:31 sleeps (time.sleep)``, ``train.py:12 runs Python (tokenise)``.
    """
    profile = finding.slow
    for line in profile.info.script_lines or ():
        ns = (line.share or 0.0) * profile.length_ns
        if line.call is not None and _SLEEPS.fullmatch(line.call):
            ns = line.ns or ns  # a busy machine lengthens everything except a sleep
        if ns >= EXPLAINED_SHARE * finding.delta_ns and _fits(line, finding.kind):
            return in_words(line)
    return ""


def _fits(line: ScriptLine, kind: str) -> bool:
    asks = line.call is not None and bool(_ASKS.fullmatch(line.call))
    return kind == causes.SYNC if asks else kind in _BESIDE_OPS


def in_words(line: ScriptLine) -> str:
    """Return the place of the line and its activity."""
    if line.file is None:
        return "Python's garbage collector runs"
    place = f"{line.file}:{line.line}"
    if line.call is None:
        return f"{place} runs Python ({line.function})"
    activities = (words for pattern, words in _ACTIVITIES if pattern.fullmatch(line.call))
    activity = next(activities, None)
    return f"{place} {activity} ({line.call})" if activity else f"{place} calls {line.call}"
