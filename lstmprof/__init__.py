"""lstmprof explains why LSTM training is slow, and what to change.

::

    import lstmprof as lp

    run = lp.read("profile.pt.trace.json.gz")
    run.table("kernels").to_pandas().nlargest(5, "total_ns")
    lp.compare("traces/fast", "traces/slow")

``import lstmprof`` is fast, because Python imports each public name on first use. Capture workers
import this file, so the file must run on Python 3.7. ``lp.capture``, ``lp.diagnose`` and
``lp.report`` are functions. To import from a subpackage with the same name, write
``from lstmprof.diagnose import …``.
"""

from __future__ import annotations

import sys
import types

from lstmprof.base.package import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lstmprof.api import *

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

#: Frameworks with a training callback ``Profile``, such as ``lp.keras.Profile``.
CALLBACKS = ("keras", "lightning", "transformers")


def __getattr__(name: str) -> object:
    if name in CALLBACKS:
        import importlib

        return importlib.import_module("lstmprof.capture.callbacks." + name)
    if name == "errors":
        from lstmprof.base import errors

        return errors
    if name not in __all__:
        raise AttributeError("module 'lstmprof' has no attribute '{}'".format(name))
    if name == "profile":  # must not import the table libraries into a training process
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
    """The type of the module ``lstmprof``, which keeps ``lp.diagnose`` a function.

    Without this type, ``import lstmprof.diagnose`` would replace the function by the subpackage.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in __all__ or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
