"""Add ranges to the profile of a PyTorch step: phases such as ``forward``, and modules.

Sources: torch/nn/modules/module.py (``register_module_forward_pre_hook``), torch/_tensor.py
(``backward``).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from typing import Any, Callable, ContextManager, Dict, List, Optional, Tuple

from lstmprof.capture.own.sizes import has_compiled

FORWARD, LOSS, BACKWARD, OPTIMIZER, INPUT = "forward", "loss", "backward", "optimizer", "input"
#: Largest number of calls per step for which a module gets a range. A range costs microseconds,
#: about as much as one time step of an LSTM cell.
MOST_CALLS = 8

Phase = Callable[[str], ContextManager[Any]]
Undo = Callable[[], None]
#: Type of ``Steps.safely``, which calls a function and catches the function's errors.
Safely = Callable[..., Any]


class TorchRanges:
    """Adds ranges of phases and modules to profiled steps, by hooks in PyTorch."""

    def __init__(self, torch: Any, phase: Phase, safely: Safely) -> None:
        self._torch, self._phase, self._safely = torch, phase, safely
        self._undo: List[Undo] = []
        self._open: List[Tuple[Any, ContextManager[Any]]] = []
        self._names: Dict[int, str] = {}
        self._calls: Counter[int] = Counter()
        self._calls_before: Counter[int] = Counter()  # module -> calls in earlier steps
        self._thread: Optional[int] = None
        # find out whether torch.compile is tracing, so that the hooks then do nothing
        compiler = getattr(torch, "compiler", None)
        self._is_compiling = getattr(compiler, "is_compiling", lambda: False)
        self.backwards = self.steps = 0

    def set(self, profiling: bool) -> None:
        """Add or remove the hooks before the next step."""
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
        """End the range with this token and all ranges inside."""
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
        # add no hooks to a compiled model, because torch.compile would recompile the model
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
        """Wrap a function, so that each call is a range in the profile."""
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
        # begin a phase if no range is open, or inside an optimizer that calls the model
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
    """Token that identifies the range of one call of a module."""

    __slots__ = ("module",)

    def __init__(self, module: Any) -> None:
        self.module = module
