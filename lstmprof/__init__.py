"""lstmprof explains why LSTM training is slow, and what to change.

::

    import lstmprof as lp

    run = lp.read("profile.pt.trace.json.gz")
    run.table("kernels").to_pandas().nlargest(5, "total_ns")
    lp.compare("traces/fast", "traces/slow")

Names are resolved when they are first used, so that importing this package costs nothing: capture
workers on Python 3.7 and ``lstmprof --help`` import it. ``lp.capture``, ``lp.diagnose`` and
``lp.report`` are functions; the subpackages of the same names are imported with
``from lstmprof.diagnose import …``.
"""

from __future__ import annotations

import sys
import types

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lstmprof.api import (
        Diagnoses,
        Diagnosis,
        Gate,
        PaperTable,
        Recommendation,
        Run,
        Table,
        Verdict,
        capture,
        charts,
        check,
        compare,
        diagnose,
        gate,
        history,
        ingest,
        profile,
        read,
        read_all,
        recommend,
        report,
        sql,
        table,
        watch,
    )

__all__ = [
    "Diagnoses",
    "Diagnosis",
    "Gate",
    "PaperTable",
    "Recommendation",
    "Run",
    "Table",
    "Verdict",
    "__version__",
    "capture",
    "charts",
    "check",
    "compare",
    "diagnose",
    "gate",
    "history",
    "ingest",
    "profile",
    "read",
    "read_all",
    "recommend",
    "report",
    "sql",
    "table",
    "watch",
]

#: Modules with a callback ``Profile`` for a framework of their name: ``lp.keras.Profile``.
CALLBACKS = ("keras", "lightning", "transformers")


def __getattr__(name: str) -> object:
    if name in CALLBACKS:
        import importlib

        return importlib.import_module("lstmprof.capture.callbacks." + name)
    if name not in __all__:
        raise AttributeError("module 'lstmprof' has no attribute '{}'".format(name))
    if name == "profile":  # in a training no table library is imported
        from lstmprof.capture.own import session

        return session.profile
    if name == "watch":
        from lstmprof.capture.own import watch

        return watch.watch
    from lstmprof import api

    return getattr(api, name)


def __dir__() -> list:  # type: ignore[type-arg]
    return sorted((*__all__, *CALLBACKS))


class _Package(types.ModuleType):
    """The module type of this package, in which ``lp.diagnose`` stays a function.

    The import system sets each loaded subpackage as an attribute of its package. This type ignores
    that if the attribute is a public function, such as ``lp.diagnose``.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in __all__ or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
