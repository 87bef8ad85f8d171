"""Ranges of a PyTorch step in the profile: its phases, and each nn.Module.

A module that runs often in a step gets no range, because a range costs some microseconds, about as
much as a time step of a cell. Hooks would make torch.compile compile again, so the modules of a
compiled model get no range. Sources: torch/nn/modules/module.py
(``register_module_forward_pre_hook``), torch/_tensor.py (``backward``).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from typing import Any, Callable, ContextManager, Dict, List, Optional, Tuple

from lstmprof.capture.own.sizes import has_compiled

FORWARD, LOSS, BACKWARD, OPTIMIZER, INPUT = "forward", "loss", "backward", "optimizer", "input"
#: Most calls of a module per step; a module that runs more often belongs to a loop.
MOST_CALLS = 8

Phase = Callable[[str], ContextManager[Any]]
Undo = Callable[[], None]
#: Type of a wrapper that calls a function of lstmprof and catches its errors.
Safely = Callable[..., Any]


class TorchRanges:
    """Adds ranges to profiled steps, by hooks in PyTorch."""

    def __init__(self, torch: Any, phase: Phase, safely: Safely) -> None:
        self._torch, self._phase, self._safely = torch, phase, safely
        self._undo: List[Undo] = []
        self._open: List[Tuple[Any, ContextManager[Any]]] = []
        self._names: Dict[int, str] = {}
        self._calls: Counter[int] = Counter()
        self._calls_before: Counter[int] = Counter()  # module -> calls in earlier steps
        self._thread: Optional[int] = None
        # lets the hooks do nothing while torch.compile traces them
        compiler = getattr(torch, "compiler", None)
        self._is_compiling = getattr(compiler, "is_compiling", lambda: False)
        self.backwards = self.steps = 0

    def set(self, profiling: bool) -> None:
        """Add the hooks if the next step is profiled, else remove them."""
        self.close(None)
        if profiling:
            self.steps += 1
            self._calls_before = Counter(self._calls)
        if profiling and not self._undo:
            self._thread = threading.get_ident()
            self._install()
        elif not profiling:
            while self._undo:
                self._undo.pop()()
            self._names.clear()

    def open(self, token: Any, name: str) -> None:
        """Begin a range that ``close(token)`` ends."""
        if self._undo and threading.get_ident() == self._thread:
            entered = self._phase(name)
            entered.__enter__()
            self._open.append((token, entered))

    def close(self, token: Any) -> None:
        """End the range of this token and all ranges inside it."""
        if threading.get_ident() != self._thread:
            return
        tokens = [opened for opened, _ in self._open]
        if token is not None and token not in tokens:
            return
        # end all open ranges if ``token`` is None
        while self._open:
            opened, entered = self._open.pop()
            entered.__exit__(None, None, None)
            if opened is token:
                return

    def _install(self) -> None:
        torch = self._torch
        self._wrap(torch.autograd, "backward", BACKWARD)
        loader = sys.modules.get("torch.utils.data.dataloader")
        if loader is not None:
            self._wrap(loader._BaseDataLoaderIter, "__next__", INPUT)
        if not has_compiled():
            module = torch.nn.modules.module
            for hook in (
                module.register_module_forward_pre_hook(
                    functools.partial(self._safely, self._module_begins)
                ),
                module.register_module_forward_hook(
                    functools.partial(self._safely, self._module_ends)
                ),
            ):
                self._undo.append(hook.remove)

    def _wrap(self, place: Any, name: str, range_name: str) -> None:
        """Replace a function so that each call of it is a range."""
        wrapped = getattr(place, name)

        @functools.wraps(wrapped)
        def ranged(*args: Any, **kwargs: Any) -> Any:
            token = object()
            self.backwards += range_name == BACKWARD
            self._safely(self.open, token, range_name)
            try:
                return wrapped(*args, **kwargs)
            finally:
                self._safely(self.close, token)

        setattr(place, name, ranged)
        self._undo.append(functools.partial(setattr, place, name, wrapped))

    def _module_begins(self, module: Any, arguments: Any) -> None:
        if self._is_compiling() or threading.get_ident() != self._thread:
            return
        # begin a phase outside of all phases, or in an optimizer that calls forward and backward
        if not self._open or self._open[-1][0] is OPTIMIZER:
            of = self._torch.nn.modules.loss._Loss
            name = LOSS if isinstance(module, of) else FORWARD
            self._names.update((id(m), path) for path, m in module.named_modules())
            self.open(_ModuleCall(module), name)
        self._calls[id(module)] += 1
        before = self.steps - 1
        if before and self._calls_before[id(module)] <= MOST_CALLS * before:
            path = self._names.get(id(module), "")
            name = "nn.Module: {} {}".format(type(module).__name__, path).strip()
            self.open(_ModuleCall(module), name)

    def _module_ends(self, module: Any, *_: Any) -> None:
        if self._is_compiling() or threading.get_ident() != self._thread:
            return
        while self._open and isinstance(self._open[-1][0], _ModuleCall):
            call = self._open[-1][0]
            if call.module is not module:
                return
            self.close(call)


class _ModuleCall:
    """One call of a module, which identifies its range."""

    __slots__ = ("module",)

    def __init__(self, module: Any) -> None:
        self.module = module
