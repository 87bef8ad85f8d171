"""Find the lines of a script on which its steps spend time outside a framework, by sampling.

In a few steps after the measured ones, a second thread of this process reads the stack of the
training thread every few milliseconds. It adds the time since the previous sample to the line of
the script that it finds. The sampling thread needs the GIL, so a call that keeps the GIL is sampled
when it returns, with its whole time; it is missed if the step ends first. Garbage collection keeps
the GIL, too, so ``gc.callbacks`` times it instead.
"""

from __future__ import annotations

import ast
import builtins
import collections
import contextlib
import dis
import gc
import inspect
import linecache
import os
import sys
import sysconfig
import threading
import time
from types import CodeType, FrameType
from typing import Any, Counter, Dict, Iterator, List, Optional, Set, Tuple

import lstmprof

#: Seconds between two samples. Not a divisor of a round number of milliseconds, so that samples do
#: not keep pace with periodic work.
_PAUSE_S = 0.0031
#: Interpreter's switch interval during sampled steps: seconds after which a thread that runs Python
#: gives the GIL to another thread.
_SWITCH_S = 0.0002
#: Sampling ends after this many steps or nanoseconds, whichever comes first. Chosen by hand.
MOST_STEPS, MOST_NS = 50, 500_000_000
#: With fewer stack samples than this, no source line is reported. Chosen by hand.
_LEAST_LOOKS = 20
#: A line with a smaller share of the steps' time than this is not reported.
_LEAST_SHARE = 0.05
_FRAMEWORKS = frozenset(
    ("torch", "tensorflow", "keras", "jax", "jaxlib", "flax", "haiku", "equinox", "optax")
)
#: Methods of a tensor that wait for its value. Their time counts as the script's, not the
#: framework's.
_VALUES = frozenset((".item", ".tolist", ".numpy", ".cpu"))
#: Methods of files, queues and locks. Like the methods of ``_LOGS``, they belong to no framework.
_WAITS = frozenset((".write", ".flush", ".read", ".readline", ".get", ".put", ".wait", ".acquire"))
_LOGS = frozenset((".debug", ".info", ".warning", ".error"))
#: Methods of texts and containers that no tensor has, as tokenising and collating call them. Their
#: time counts as time of the Python code around them.
_TEXTS = frozenset(
    (
        *(".strip", ".lstrip", ".rstrip", ".lower", ".upper", ".casefold", ".join", ".startswith"),
        *(".endswith", ".splitlines", ".encode", ".decode", ".translate", ".isalpha", ".isdigit"),
        *(".append", ".extend", ".setdefault"),
    )
)
GARBAGE_COLLECTOR = "garbage collector"

#: A place in a stack: the code of a frame, and the index of the instruction that it executes.
_At = Tuple[CodeType, int]


class LineSampler:
    """Samples the stack of the thread that creates this object, during its steps."""

    def __init__(self) -> None:
        self.steps = 0
        self._thread = threading.get_ident()
        # time of the last sample in this step; None between steps
        self._since_ns: Optional[int] = None
        self._over = threading.Event()
        self._looks = 0
        self._ns = self._collecting_ns = self._collection_ns = 0
        self._counts: Counter[Tuple[_At, ...]] = collections.Counter()
        self._globals: Dict[CodeType, Dict[str, Any]] = {}

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Run the sampling thread during the context; restore the interpreter's settings."""
        usual = sys.getswitchinterval()
        thread = threading.Thread(target=self._look_often, name="lstmprof lines", daemon=True)
        gc.callbacks.append(self._collects)
        sys.setswitchinterval(_SWITCH_S)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            sys.setswitchinterval(usual)
            gc.callbacks.remove(self._collects)
            thread.join()

    @contextlib.contextmanager
    def in_step(self) -> Iterator[None]:
        """Count the context as a step: samples are taken only inside."""
        began_ns = self._since_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self._since_ns = None
            self._ns += time.perf_counter_ns() - began_ns
            self.steps += 1

    def _look_often(self) -> None:
        while not self._over.wait(_PAUSE_S):
            since_ns, now_ns = self._since_ns, time.perf_counter_ns()
            frame = sys._current_frames().get(self._thread)
            if since_ns is not None and frame is not None:
                self._counts[self._stack(frame)] += now_ns - since_ns
                self._looks += 1
                if self._since_ns == since_ns:  # the same step is still running
                    self._since_ns = now_ns

    def _stack(self, frame: Optional[FrameType]) -> Tuple[_At, ...]:
        """Return the frames from the innermost outwards, up to the first of the user's code."""
        stack: List[_At] = []
        while frame is not None:
            stack.append((frame.f_code, frame.f_lasti))
            if _is_own(frame.f_code.co_filename):
                self._globals[frame.f_code] = frame.f_globals
                return tuple(stack)
            frame = frame.f_back
        return tuple(stack)

    def _collects(self, phase: str, info: Dict[str, int]) -> None:
        if threading.get_ident() != self._thread or self._since_ns is None:
            return
        if phase == "start":
            self._collection_ns = time.perf_counter_ns()
        elif self._collection_ns:
            self._collecting_ns += time.perf_counter_ns() - self._collection_ns

    def lines(self) -> Optional[List[Dict[str, Any]]]:
        """Return the script's lines and functions with their shares of the steps' time.

        The largest share comes first. Return None if there are too few samples.

        Keys: file, line, function, call (name of the called function), share, ns (per step).
        """
        if self._looks < _LEAST_LOOKS or not self._ns:
            return None
        spent: Counter[Tuple[CodeType, int, Optional[str]]] = collections.Counter()
        impure: Set[CodeType] = set()  # functions of the script that call a framework
        for stack, ns in self._counts.items():
            code, last = stack[-1]
            if code not in self._globals:
                continue
            call = _call_at(code, last, self._globals[code])
            if call in _TEXTS and len(stack) == 1:
                call = None
            below = any(_package(each.co_filename) in _FRAMEWORKS for each, _ in stack[:-1])
            if below or _is_of_framework(call, len(stack) == 1):
                impure.add(code)
                continue
            spent[code, _line_at(code, last), call] += ns
        functions: Counter[CodeType] = collections.Counter()
        rows = []
        for (code, line, call), ns in spent.items():
            if call is None:
                functions[code] += ns
            else:
                rows.append(self._row(code, line, call, ns))
        rows += [
            self._row(code, code.co_firstlineno, None, ns)
            for code, ns in functions.items()
            if code not in impure and code.co_name != "<module>"
        ]
        rows.append(self._row(None, None, GARBAGE_COLLECTOR, self._collecting_ns))
        rows = [row for row in rows if row["share"] >= _LEAST_SHARE]
        return sorted(rows, key=lambda row: -row["share"])

    def _row(
        self, code: Optional[CodeType], line: Optional[int], call: Optional[str], ns: int
    ) -> Dict[str, Any]:
        return {
            "file": code and os.path.basename(code.co_filename),
            "line": line,
            "function": code and code.co_name,
            "call": call,
            "share": min(ns / self._ns, 1.0),
            "ns": round(ns / self.steps),
        }


def _is_of_framework(call: Optional[str], is_innermost: bool) -> bool:
    """Return whether ``call``, as ``_call_at`` names it, may belong to a framework.

    A method of an unknown object (``.name``) may, if it is the innermost frame's call: then no
    Python code shows where it belongs.
    """
    if call is None or call in _VALUES:
        return False
    if call.startswith("."):
        return is_innermost and call not in _WAITS | _LOGS
    return call.partition(".")[0] in _FRAMEWORKS


_NOT_OWN = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.dirname(os.path.abspath(lstmprof.__file__)),
    }
)


def _is_own(file: str) -> bool:
    """Return whether a file is the user's: not Python's, lstmprof's or an installed package's."""
    if file.startswith("<"):
        return file.startswith("<ipython")
    return "-packages" + os.sep not in file and not os.path.realpath(file).startswith(_NOT_OWN)


def _package(file: str) -> str:
    return file.rpartition("-packages" + os.sep)[2].partition(os.sep)[0]


def _line_at(code: CodeType, last: int) -> int:
    """Return the source line of the instruction at index ``last``."""
    line = code.co_firstlineno
    for start, at in dis.findlinestarts(code):
        if start > last:
            break
        line = at or line
    return line


def _call_at(code: CodeType, last: int, names: Dict[str, Any]) -> Optional[str]:
    """Return the name of the function that the instruction at index ``last`` calls, or None.

    The name is ``module.function``, or ``.method`` for an unknown object. ``names`` are the
    globals.
    """
    tree = _expression(code, last)
    if not isinstance(tree, ast.Call):
        return None
    attributes: List[str] = []
    called: Any = tree.func
    while isinstance(called, ast.Attribute):
        attributes.insert(0, called.attr)
        called = called.value
    if not isinstance(called, ast.Name):
        return "." + attributes[-1] if attributes else None
    base = names.get(called.id, getattr(builtins, called.id, None))
    if inspect.ismodule(base):
        return ".".join([base.__name__, *attributes])
    if base is None:
        return "." + attributes[-1] if attributes else called.id
    owner = base if hasattr(base, "__qualname__") else type(base)
    where = getattr(owner, "__module__", None)
    full = ".".join([owner.__qualname__, *attributes])
    return full if where in (None, "builtins", "__main__") else "{}.{}".format(where, full)


def _expression(code: CodeType, last: int) -> Optional[ast.AST]:
    """Return the expression that the instruction at index ``last`` evaluates, or None.

    Since Python 3.11, its columns are known; before, it is the only call on its line.
    """
    line = end = _line_at(code, last)
    columns: Any = (None, None)
    if hasattr(code, "co_positions"):  # Python 3.11
        positions = list(code.co_positions())
        first, final, *columns = positions[last // 2]
        if first is not None and final is not None:
            line, end = first, final
    text = [linecache.getline(code.co_filename, number) for number in range(line, end + 1)]
    with contextlib.suppress(SyntaxError, ValueError):
        if None not in columns:
            encoded = [each.encode() for each in text]
            encoded[-1] = encoded[-1][: columns[1]]
            encoded[0] = encoded[0][columns[0] :]
            return ast.parse("(" + b"".join(encoded).decode() + ")", mode="eval").body
        calls = [n for n in ast.walk(ast.parse(text[0].strip())) if isinstance(n, ast.Call)]
        return calls[0] if len(calls) == 1 else None
    return None
