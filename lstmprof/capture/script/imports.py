"""What is done to a module as soon as a script has imported it.

A finder in front of ``sys.meta_path`` finds nothing itself: it asks the others, and has what their
loader executes looked at afterwards. Source: PEP 302, "Import Hook Registration".
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import Any, Callable, Dict, Optional, Sequence

Attach = Callable[[Any], None]


class Watch(importlib.abc.MetaPathFinder):
    """Calls ``attach[name]`` with each module of that name, once, after it was executed."""

    def __init__(self, attach: Dict[str, Attach]) -> None:
        self._attach = dict(attach)

    def install(self) -> None:
        """Look at every import from now on."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Any = None
    ) -> Optional[Any]:
        """The spec that the other finders have, its loader watched; None of other modules."""
        attach = self._attach.pop(name, None)
        if attach is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Watched(spec.loader, attach)
        return spec


class _Watched(importlib.abc.Loader):
    """A loader, and what follows it."""

    def __init__(self, loader: Any, attach: Attach) -> None:
        self._loader, self._attach = loader, attach

    def create_module(self, spec: Any) -> Any:
        """As the loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Execute the module under its own loader, then look at it."""
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._attach(module)
