"""Which interpreter runs an implementation: the one given, this one, or that of an environment.

It also says which implementations this machine can run (``here``). Nothing is installed here: an
environment says where its interpreter is or will be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import re
import shutil
import sys
from collections.abc import Sequence

from lstmprof.capture.interpreters import eras
from lstmprof.capture.interpreters.environments import Environment, environment_for, python_at
from lstmprof.capture.interpreters.eras import Era
from lstmprof.capture.worker.host import cuda_devices
from lstmprof.errors import CaptureError, LstmprofError, UsageError
from lstmprof.implementations import Implementation, version_numbers

APART = "needs its own environment, which lstmprof capture installs"
#: Libraries by the names under which they are imported, whose packages are called otherwise.
_PACKAGES = {"haiku": "dm-haiku"}
#: From 2.4 to 2.15 a version of Keras is the one of TensorFlow of the same number.
_PAIRED = ((2, 4), (2, 15))


@dataclasses.dataclass(frozen=True)
class Wish:
    """What the user says of interpreters, for all implementations alike."""

    python: str | None = None
    packages: tuple[str, ...] = ()
    era: str | None = None
    versions: tuple[str, ...] = ()  # 1.4.0, of the implementation's framework, or keras==2.12.0


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """What runs the workers of one capture.

    ``label`` is what tells its run from one of no wish; ``version`` is the framework's, None where
    only the worker will know it; ``fault`` is why there is no such interpreter.
    """

    python: str = sys.executable
    label: str = ""
    environment: Environment | None = None
    version: str | None = None
    fault: LstmprofError | None = None


def interpreters(row: Implementation, wish: Wish) -> list[Interpreter]:
    """One for each version that is wished for, else one.

    Raises:
        UsageError: the wish cannot be meant.
    """
    if wish.versions and (wish.packages or wish.era):
        raise UsageError(
            "--versions excludes --with and --era", "omit --versions, or omit the others"
        )
    if wish.versions:
        return [_of_version(row, version, wish.python) for version in wish.versions]
    if wish.packages or wish.era:
        label = "+".join([*([wish.era] if wish.era else []), *wish.packages])
        era = wish.era or _rows_era(row, wish.packages)
        return [_of_environment(row, wish.packages, era, wish.python, label)]
    if wish.python:
        python_at(wish.python)  # refuses what does not run
        return [Interpreter(shutil.which(wish.python) or wish.python)]
    if row.era and not _has(eras.find(row.era)):
        return [_of_environment(row, (), row.era, None, "")]
    return [Interpreter()]


def _of_version(row: Implementation, version: str, python: str | None) -> Interpreter:
    """That of a version of the row's framework, or of ``package==version``."""
    wanted = version if "=" in version else f"{framework_package(row)}=={version}"
    version_wanted = eras.version_of(wanted)
    if version_wanted is None:
        raise UsageError(
            f"--versions: '{version}' is not a version", "write 1.4.0, or keras==2.12.0"
        )
    if python is None and version_wanted == _installed(eras.package_of(wanted)):
        return Interpreter(label=_label(wanted), version=_framework_version(row, [wanted]))
    packages = [wanted, *_beside(row, wanted)]
    return _of_environment(row, packages, _rows_era(row, [wanted]), python, wanted)


def _rows_era(row: Implementation, packages: Sequence[str]) -> str | None:
    """The era that the row names, where one of ``packages`` is a version of its first package."""
    era = eras.find(row.era) if row.era else None
    names = era is not None and any(era.is_of(package) for package in packages)
    return row.era if names else None


def _beside(row: Implementation, wanted: str) -> list[str]:
    """What the row imports and neither ``wanted`` brings nor its era."""
    package, version = eras.package_of(wanted), version_numbers(eras.version_of(wanted) or "")
    framework, library = framework_package(row), _PACKAGES.get(row.library, row.library)
    if _rows_era(row, [wanted]):
        return []
    if row.framework == "tensorflow" and package == "keras":
        if version < _PAIRED[0]:
            return []  # its era says which
        paired = version[:2] <= _PAIRED[1]
        return [f"tensorflow=={version[0]}.{version[1]}.*" if paired else "tensorflow"]
    if row.framework == "tensorflow" and library == "keras":
        return []  # it comes with TensorFlow
    return [p for p in dict.fromkeys((framework, library)) if p and p != package]


def _of_environment(
    row: Implementation, packages: Sequence[str], era: str | None, python: str | None, label: str
) -> Interpreter:
    try:
        environment = environment_for(packages, era, python)
    except UsageError:
        raise
    except LstmprofError as fault:
        return Interpreter(label=_label(label), fault=fault)
    return Interpreter(
        str(environment.interpreter),
        _label(label),
        environment,
        _framework_version(row, environment.packages),
    )


def _label(text: str) -> str:
    return re.sub(r"[^\w.=+-]+", "-", text)


def framework_package(row: Implementation) -> str:
    """The package whose versions are those of ``row``: its era's, or its framework's."""
    return eras.find(row.era).package if row.era else row.framework


def _framework_version(row: Implementation, packages: Sequence[str]) -> str | None:
    names = _names(framework_package(row))
    versions = (eras.version_of(p) for p in packages if eras.package_of(p) in names)
    return next((version for version in versions if version), None)


def _has(era: Era) -> bool:
    """Whether this interpreter has the era's first package, in one of its versions."""
    installed = _installed(era.package)
    return installed is not None and era.has(installed)


def _installed(package: str) -> str | None:
    """The version that this interpreter has, without what stands after a plus sign."""
    for name in _names(package):
        try:
            return importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _names(package: str) -> tuple[str, str]:
    """TensorFlow without its GPU part has a name of its own."""
    return package, f"{package}-cpu"


def here(row: Implementation) -> str:
    """``yes`` where this machine can run ``row``, if apart from this interpreter; else why not."""
    lacking = lacks(row)
    if row.era and lacking == APART:
        return in_era(row.era)
    return lacking or "yes"


def lacks(row: Implementation) -> str | None:
    """Why ``row`` does not run in this interpreter; None where it does."""
    if "cpu" in row.refusals() and not cuda_devices():
        return "needs a GPU"
    needed = [row.framework, *([row.library] if row.library else [])]
    missing = [name for name in needed if not _can_be_imported(name)]
    if missing and row.era:
        return APART
    return f"{missing[0]} is not installed" if missing else None


def in_era(name: str) -> str:
    """Whether the environment that the row names is there, or can be made."""
    try:
        environment = environment_for((), name)
    except LstmprofError as fault:
        return str(fault.fault)
    return "yes, in its own environment" if environment.is_made else "yes, after installation"


def _can_be_imported(name: str) -> bool:
    if name != "cudnn":
        return importlib.util.find_spec(name) is not None
    from lstmprof.implementations.cudnn._runtime import CUDNN, loaded

    with contextlib.suppress(CaptureError):
        return bool(loaded(*CUDNN))
    return False
