"""lstmprof: why one LSTM is slower than another.

::

    import lstmprof as lp

    run = lp.read("profile.pt.trace.json.gz")
    run.table("kernels").to_pandas().nlargest(5, "total_ns")
    lp.compare("traces/fast", "traces/slow").sentence

Names are resolved when they are first used, so that importing this costs nothing: workers of
Python 3.7 and ``lstmprof --help`` do. Some stages have the name of the function that runs them
(``lstmprof.capture``): calling the module calls the function.
"""

from __future__ import annotations

import sys
import types

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lstmprof.api import (
        Diagnosis,
        Gate,
        Run,
        Table,
        capture,
        charts,
        compare,
        diagnose,
        gate,
        history,
        ingest,
        profile,
        read,
        read_all,
        report,
        sql,
    )

__all__ = [
    "Diagnosis",
    "Gate",
    "Run",
    "Table",
    "__version__",
    "capture",
    "charts",
    "compare",
    "diagnose",
    "gate",
    "history",
    "ingest",
    "profile",
    "read",
    "read_all",
    "report",
    "sql",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError("module 'lstmprof' has no attribute '{}'".format(name))
    if name == "profile":  # in a training no table library is imported
        from lstmprof.capture.own import session

        return session.profile
    from lstmprof import api

    return getattr(api, name)


def __dir__() -> list:  # type: ignore[type-arg]
    return sorted(__all__)


class _Stage(types.ModuleType):
    """A stage that is called by the name of the function that runs it."""

    def __call__(self, *arguments: object, **named: object) -> object:
        return __getattr__(self.__name__.rpartition(".")[2])(*arguments, **named)  # type: ignore[operator]

    @property
    def __signature__(self) -> object:
        import inspect

        return inspect.signature(__getattr__(self.__name__.rpartition(".")[2]))  # type: ignore[arg-type]


class _Package(types.ModuleType):
    """This package; the import system sets a stage as its attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in __all__ and isinstance(value, types.ModuleType):
            value.__class__ = _Stage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
