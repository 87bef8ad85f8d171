"""Find the lines of a script that wait, or that spend time outside a framework.

A second thread samples the training thread's stack every few milliseconds, in extra steps after the
measured steps.
"""

from __future__ import annotations

import ast
import builtins
import collections
import contextlib
import dis
import functools
import gc
import inspect
import itertools
import linecache
import os
import sys
import sysconfig
import threading
import time
from types import CodeType, FrameType
from typing import Any, Counter, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from lstmprof.base.package import FOLDER
from lstmprof.capture.worker.machine.usage import active_ns, this_thread

#: Seconds between samples: not a round number, so that samples do not coincide with periodic work.
_PAUSE_S = 0.0031
#: Switch interval of Python's threads in seconds (sys.setswitchinterval) while lstmprof samples.
_SWITCH_S = 0.0002
#: Largest number of sampled steps, and ns after which sampling ends. Chosen by hand.
MOST_STEPS, MOST_NS = 50, 500_000_000
#: Smallest number of samples at which lstmprof reports lines. Chosen by hand.
_LEAST_SAMPLES = 20
#: Smallest share of the steps' time for which lstmprof reports a line.
_LEAST_SHARE = 0.05
#: Longest ns after a step's last sample that are added to the next step's first sample.
#: A longer time means that a call kept the GIL.
_LONGEST_END_NS = 2e9 * _PAUSE_S
#: Smallest blocked share of a line's time at which lstmprof treats a line without a call as
#: waiting. Chosen by hand.
_WAITING_SHARE = 0.2
_FRAMEWORKS = frozenset(
    ("torch", "tensorflow", "keras", "jax", "jaxlib", "flax", "haiku", "equinox", "optax")
)
#: Methods that wait for a tensor's value. Their time counts as the script's, not the framework's.
_VALUES = frozenset((".item", ".tolist", ".numpy", ".cpu"))
#: Blocking methods of files, queues and locks, which count as the script's, not a framework's.
_WAITS = frozenset(
    (".write", ".flush", ".read", ".readline", ".get", ".put", ".wait", ".acquire", ".recv")
)
_SYSTEM = frozenset(
    (
        *("time", "os", "posix", "nt", "io", "_io", "select", "subprocess"),
        *("_thread", "_queue", "_socket"),
    )
)
#: Beginnings of statements that may block although the line has no call.
_WAITING_STATEMENTS = ("with ", "for ", "async with ", "async for ")
_LOGS = frozenset((".debug", ".info", ".warning", ".error"))
#: Methods of strings, lists and dicts, but not of tensors, that tokenisers and collators call.
_TEXTS = frozenset(
    (
        *(".strip", ".lstrip", ".rstrip", ".lower", ".upper", ".casefold", ".join", ".startswith"),
        *(".endswith", ".splitlines", ".encode", ".decode", ".translate", ".isalpha", ".isdigit"),
        *(".append", ".extend", ".setdefault"),
    )
)
GARBAGE_COLLECTOR = "garbage collector"

#: The code of a frame, and the number of the instruction that the frame executes.
_At = Tuple[CodeType, int]
_Stack = Tuple[_At, ...]


class _Line(NamedTuple):
    """A place where the script spends time: a line, or a whole function."""

    code: CodeType
    line: int  # for a whole function: the function's first line
    call: Optional[str] = None  # name of the called function, if any
    beside: bool = False  # in another thread than the steps


class LineSampler:
    """Samples the call stack of the training thread, which must create this object."""

    def __init__(self) -> None:
        self.steps = 0
        self._thread, self._number = threading.get_ident(), this_thread()
        self._shows_waits = active_ns(self._number) is not None
        # time of the last sample in this step, or None between steps
        self._since_ns: Optional[int] = None
        # ns for which the thread had run or waited for a CPU by the last sample, or 0 if unknown
        self._active_since_ns = 0
        # (wall ns, active ns) from the previous step's last sample to that step's end
        self._end_ns = (0, 0)
        self._over = threading.Event()
        self._samples = 0
        self._ns = self._collecting_ns = self._collection_ns = 0
        self._spent: Counter[_Stack] = collections.Counter()
        self._active: Counter[_Stack] = collections.Counter()
        self._beside: Counter[_Stack] = collections.Counter()
        self._globals: Dict[CodeType, Dict[str, Any]] = {}
        # function of the script -> ns, including the ns of called functions
        self._within: Counter[CodeType] = collections.Counter()
        self._trees: Set[CodeType] = set()  # functions that visit trees, as a Tree-LSTM does
        self._frames: List[FrameType] = []  # frames of the script in the last sample

    @contextlib.contextmanager
    def sampling_stacks(self) -> Iterator[None]:
        """Run the sampling thread inside the ``with`` block."""
        usual = sys.getswitchinterval()
        thread = threading.Thread(target=self._sample_often, name="lstmprof lines", daemon=True)
        # time the garbage collector, which keeps the GIL and thus stops the sampling thread
        gc.callbacks.append(self._time_collection)
        sys.setswitchinterval(_SWITCH_S)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            sys.setswitchinterval(usual)
            gc.callbacks.remove(self._time_collection)
            thread.join()
            self._frames = []

    @contextlib.contextmanager
    def in_step(self) -> Iterator[None]:
        """Sample inside the ``with`` block, and count the block as one step."""
        end_ns, end_active_ns = self._end_ns
        self._active_since_ns = self._active_ns() - end_active_ns
        began_ns = time.perf_counter_ns()
        self._since_ns = began_ns - end_ns
        try:
            yield
        finally:
            since_ns, self._since_ns = self._since_ns, None
            ended_ns = time.perf_counter_ns()
            self._ns += ended_ns - began_ns
            self.steps += 1
            end_ns = ended_ns - since_ns
            end_active_ns = self._active_ns() - self._active_since_ns
            is_short = (end_active_ns if self._shows_waits else end_ns) <= _LONGEST_END_NS
            self._end_ns = (end_ns, end_active_ns) if is_short else (0, 0)

    def _active_ns(self) -> int:
        return active_ns(self._number) or 0

    def _sample_often(self) -> None:
        own = threading.get_ident()
        while not self._over.wait(_PAUSE_S):
            frames, step, since_ns = sys._current_frames(), self.steps, self._since_ns
            frame = frames.get(self._thread)
            if since_ns is None or frame is None:
                continue
            self._since_ns = now_ns = time.perf_counter_ns()
            self._samples += 1
            stack = self._stack(frame)
            # add all time since the last sample, because a call that keeps the GIL delays samples
            self._spent[stack] += now_ns - since_ns
            self._note_trees(frame, now_ns - since_ns)
            # also sample threads in which a framework calls the script, such as tf.data for batches
            for thread, frame in frames.items():
                if thread not in (own, self._thread) and _is_called_by_framework(frame):
                    self._beside[self._stack(frame)] += now_ns - since_ns
            ran_ns = self._active_ns()  # meanwhile, the step may end
            if self.steps == step:
                self._active[stack] += ran_ns - self._active_since_ns
                self._active_since_ns = ran_ns

    def _stack(self, frame: Optional[FrameType]) -> _Stack:
        """Return the frames from the innermost outwards, ending at the user's code."""
        stack: List[_At] = []
        while frame is not None:
            stack.append((frame.f_code, frame.f_lasti))
            if _is_own(frame.f_code.co_filename):
                self._globals[frame.f_code] = frame.f_globals
                return tuple(stack)
            frame = frame.f_back
        return tuple(stack)

    def _note_trees(self, frame: Optional[FrameType], ns: int) -> None:
        """Add ``ns`` to each running function; find recursion over a tree (Tree-LSTM)."""
        frames: List[FrameType] = []
        while frame is not None:
            code = frame.f_code
            if _is_own(code.co_filename) and not code.co_name.startswith("<"):
                frames.insert(0, frame)
            frame = frame.f_back
        self._within.update(dict.fromkeys((each.f_code for each in frames), ns))
        pairs = itertools.takewhile(lambda pair: pair[0] is pair[1], zip(frames, self._frames))
        shared = len(list(pairs))
        caller = frames[shared - 1].f_code if shared else None
        later = (frames[shared:], self._frames[shared:])
        # one invocation made two recursive calls, one per sample: the function visits a tree
        if caller and all(caller in [each.f_code for each in part] for part in later):
            self._trees.add(caller)
        self._frames = frames

    def facts(self) -> Dict[str, Any]:
        return {"script_lines": self.lines(), "script_tree": self._tree()}

    def _tree(self) -> Optional[Dict[str, Any]]:
        """Describe the function that visits a tree and takes the most time, for run.json."""
        code = max(self._trees, key=self._within.__getitem__, default=None)
        if code is None:
            return None
        return {
            "file": os.path.basename(code.co_filename),
            "line": code.co_firstlineno,
            "function": code.co_name,
            "ns": round(self._within[code] / self.steps),
        }

    def _time_collection(self, phase: str, info: Dict[str, int]) -> None:
        if threading.get_ident() != self._thread or self._since_ns is None:
            return
        if phase == "start":
            self._collection_ns = time.perf_counter_ns()
        elif self._collection_ns:
            self._collecting_ns += time.perf_counter_ns() - self._collection_ns

    def lines(self) -> Optional[List[Dict[str, Any]]]:
        """Return the lines with a large share of the steps' time, the largest first."""
        if self._samples < _LEAST_SAMPLES or not self._ns:
            return None
        waited: Counter[_Line] = collections.Counter()
        spent = self._lines_of(self._spent, waited)
        beside = self._lines_of(self._beside, None)
        spent.update({line._replace(beside=True): ns for line, ns in beside.items()})
        rows = [self._row(line, ns, waited[line]) for line, ns in spent.items()]
        rows.append(self._row(None, self._collecting_ns, 0))
        rows = [row for row in rows if row["share"] >= _LEAST_SHARE]
        return sorted(rows, key=lambda row: -row["share"])

    def _lines_of(
        self, stacks: Counter[_Stack], waited: Optional[Counter[_Line]]
    ) -> Counter[_Line]:
        """Sum up the ns of each line or function, and add the ns of waits to ``waited``."""
        spent: Counter[_Line] = collections.Counter()
        impure: Set[CodeType] = set()  # the script's functions that call a framework
        for stack, ns in stacks.items():
            code, last = stack[-1]
            if code not in self._globals:
                continue
            call = _call_at(code, last, self._globals[code])
            if call in _TEXTS and len(stack) == 1:
                call = None
            below = any(_is_framework(each) for each, _ in stack[:-1])
            if below or _is_of_framework(call, len(stack) == 1):
                impure.add(code)
                continue
            line = _Line(code, _line_at(code, last), call)
            blocked_ns = 0
            if waited is not None and self._shows_waits and _may_wait(line, len(stack) == 1):
                blocked_ns = ns - self._active[stack]
            if call is None and blocked_ns < _WAITING_SHARE * ns:
                line = _Line(code, code.co_firstlineno)
            elif waited is not None:
                waited[line] += blocked_ns
            spent[line] += ns
        for line in list(spent):
            is_function = line.call is None and line.line == line.code.co_firstlineno
            if is_function and (line.code in impure or line.code.co_name == "<module>"):
                del spent[line]
        return spent

    def _row(self, line: Optional[_Line], ns: int, waited_ns: int) -> Dict[str, Any]:
        """Describe a line of the script for run.json."""
        shows_waits = self._shows_waits and not (line and line.beside)
        return {
            "file": line and os.path.basename(line.code.co_filename),
            "line": line and line.line,
            "function": line and line.code.co_name,
            "call": line.call if line else GARBAGE_COLLECTOR,
            "share": min(ns / self._ns, 1.0),
            "ns": round(ns / self.steps),
            "waits_ns": round(min(max(waited_ns, 0), ns) / self.steps) if shows_waits else None,
            "beside": bool(line and line.beside),
        }


def _is_called_by_framework(frame: Optional[FrameType]) -> bool:
    """Return whether a framework called the user's innermost function."""
    while frame is not None and not _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    while frame is not None:
        if _package(frame.f_code.co_filename) in _FRAMEWORKS:
            return True
        frame = frame.f_back
    return False


def _may_wait(line: _Line, is_innermost: bool) -> bool:
    """Return whether the script itself may block at this line, as in ``open``."""
    if not is_innermost:
        return True
    if line.call is None:
        text = linecache.getline(line.code.co_filename, line.line).lstrip()
        return text.startswith(_WAITING_STATEMENTS)
    if line.call in _WAITS or line.call in ("open", "input", "print"):
        return True
    # count only calls to system modules, because an unknown function may be a framework's
    return line.call.partition(".")[0] in _SYSTEM


def _is_of_framework(call: Optional[str], is_innermost: bool) -> bool:
    """Return whether ``call`` may be the name of a framework's function."""
    if call is None or call in _VALUES:
        return False
    if call.startswith("."):
        # a method of an unknown object without a frame of its own is C code, perhaps a framework's
        return is_innermost and call not in _WAITS | _LOGS
    return call.partition(".")[0] in _FRAMEWORKS


_NOT_OWN = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        FOLDER,
    }
)


@functools.lru_cache(maxsize=None)
def _is_own(file: str) -> bool:
    """Return whether a file is the user's, not Python's, lstmprof's or a package's."""
    if file.startswith("<"):
        return file.startswith("<ipython")
    return "-packages" + os.sep not in file and not os.path.realpath(file).startswith(_NOT_OWN)


_OURS = os.path.join(FOLDER, "")


def _is_framework(code: CodeType) -> bool:
    """Return whether code is a framework's, or lstmprof's wrapper around a framework."""
    return _package(code.co_filename) in _FRAMEWORKS or code.co_filename.startswith(_OURS)


def _package(file: str) -> str:
    return file.rpartition("-packages" + os.sep)[2].partition(os.sep)[0]


def _line_at(code: CodeType, last: int) -> int:
    """Return the source line of an instruction."""
    line = code.co_firstlineno
    for start, at in dis.findlinestarts(code):
        if start > last:
            break
        line = at or line
    return line


def _call_at(code: CodeType, last: int, names: Dict[str, Any]) -> Optional[str]:
    """Return the name of the called function: ``module.function`` or ``.method``."""
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
        return "." + (attributes or [called.id])[-1]
    package = type(base).__module__.partition(".")[0]
    if package in _FRAMEWORKS:  # a compiled function, which has the script's name for it
        return ".".join([package, called.id, *attributes])
    owner = base if hasattr(base, "__qualname__") else type(base)
    where = getattr(owner, "__module__", None)
    full = ".".join([owner.__qualname__, *attributes])
    return full if where in (None, "builtins", "__main__") else "{}.{}".format(where, full)


def _expression(code: CodeType, last: int) -> Optional[ast.AST]:
    """Return the syntax tree of the expression that an instruction evaluates."""
    line = end = _line_at(code, last)
    columns: Any = (None, None)
    if hasattr(code, "co_positions"):  # Python 3.11: columns are known
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
        # without columns (before Python 3.11), return the line's call if there is only one
        calls = [n for n in ast.walk(ast.parse(text[0].strip())) if isinstance(n, ast.Call)]
        return calls[0] if len(calls) == 1 else None
    return None
