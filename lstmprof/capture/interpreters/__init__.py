"""Choose the Python that runs an implementation: the user's, this one, or an environment's.

An era is a set of old package versions that an implementation needs. This module installs nothing.
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

from lstmprof.base.errors import CaptureError, LstmprofError, UsageError
from lstmprof.base.package import version_numbers
from lstmprof.capture.interpreters import eras
from lstmprof.capture.interpreters.environments import Environment, environment_for, python_at
from lstmprof.capture.interpreters.eras import Era
from lstmprof.capture.worker.machine.host import cuda_devices
from lstmprof.implementations import Implementation

APART = "needs its own environment, which lstmprof capture installs"
#: Import name -> package name, for names that differ.
_PACKAGES = {"haiku": "dm-haiku"}
#: First and last version for which Keras 2.x needs TensorFlow 2.x, with equal x.
_PAIRED = ((2, 4), (2, 15))


@dataclasses.dataclass(frozen=True)
class Wish:
    """The user's options for interpreters, which apply to all implementations."""

    python: str | None = None
    packages: tuple[str, ...] = ()
    era: str | None = None
    # wanted versions of the implementation's framework (1.4.0) or of a package (keras==2.12.0)
    versions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """The Python that runs the workers of one capture."""

    python: str = sys.executable
    label: str = ""  # part of the run's name
    environment: Environment | None = None
    version: str | None = None
    fault: LstmprofError | None = None  # why no such Python exists


def interpreters(row: Implementation, wish: Wish) -> list[Interpreter]:
    """Return one interpreter per version that the user requested."""
    if wish.versions and (wish.packages or wish.era):
        raise UsageError(
            "--versions cannot be combined with --with or --era",
            "omit --versions, or omit the others",
        )
    if wish.versions:
        return [_interpreter_for_version(row, version, wish.python) for version in wish.versions]
    if wish.packages or wish.era:
        label = "+".join([*([wish.era] if wish.era else []), *wish.packages])
        era = wish.era or _rows_era(row, wish.packages)
        return [_environment_interpreter(row, wish.packages, era, wish.python, label)]
    if wish.python:
        python_at(wish.python)  # raises an error if it does not run
        return [Interpreter(shutil.which(wish.python) or wish.python)]
    if row.era and not _has(eras.find(row.era)):
        return [_environment_interpreter(row, (), row.era, None, "")]
    return [Interpreter()]


def _interpreter_for_version(row: Implementation, version: str, python: str | None) -> Interpreter:
    """Return the interpreter for a version such as ``1.4.0`` or ``keras==2.12.0``."""
    wanted = version if "=" in version else f"{framework_package(row)}=={version}"
    version_wanted = eras.version_of(wanted)
    if version_wanted is None:
        raise UsageError(
            f"--versions: '{version}' is not a version", "write 1.4.0, or keras==2.12.0"
        )
    if python is None and version_wanted == _installed(eras.package_of(wanted)):
        return Interpreter(label=_label(wanted), version=_framework_version(row, [wanted]))
    packages = [wanted, *_more_packages(row, wanted)]
    return _environment_interpreter(row, packages, _rows_era(row, [wanted]), python, wanted)


def _rows_era(row: Implementation, packages: Sequence[str]) -> str | None:
    """Return the row's era (old packages) if the era has a version in ``packages``."""
    era = eras.find(row.era) if row.era else None
    names = era is not None and any(era.includes(package) for package in packages)
    return row.era if names else None


def _more_packages(row: Implementation, wanted: str) -> list[str]:
    """List packages to install with ``keras==2.12.0``: ``["tensorflow==2.12.*"]``."""
    package, version = eras.package_of(wanted), version_numbers(eras.version_of(wanted) or "")
    framework, library = framework_package(row), _PACKAGES.get(row.library, row.library)
    if _rows_era(row, [wanted]):
        # the era's environment already contains all packages
        return []
    if row.framework == "tensorflow" and package == "keras":
        if version < _PAIRED[0]:
            return []  # an era lists what this version of Keras needs
        paired = version[:2] <= _PAIRED[1]
        return [f"tensorflow=={version[0]}.{version[1]}.*" if paired else "tensorflow"]
    if row.framework == "tensorflow" and library == "keras":
        return []  # TensorFlow includes Keras
    return [p for p in dict.fromkeys((framework, library)) if p and p != package]


def _environment_interpreter(
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
    """Return the package that a bare version such as ``1.4.0`` refers to."""
    return eras.find(row.era).package if row.era else row.framework


def _framework_version(row: Implementation, packages: Sequence[str]) -> str | None:
    names = _names(framework_package(row))
    versions = (eras.version_of(p) for p in packages if eras.package_of(p) in names)
    return next((version for version in versions if version), None)


def _has(era: Era) -> bool:
    """Return whether this Python has a framework version that the era supports."""
    installed = _installed(era.package)
    return installed is not None and era.has(installed)


def _installed(package: str) -> str | None:
    """Return a package's installed version without a local part such as ``+cu121``."""
    for name in _names(package):
        try:
            return importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _names(package: str) -> tuple[str, str]:
    # add the name of the package without GPU support, such as ``tensorflow-cpu``
    return package, f"{package}-cpu"


def here(row: Implementation) -> str:
    """Return in words, for ``lstmprof list``, whether an implementation can run here."""
    lacking = lacks(row)
    if row.era and lacking == APART:
        return in_era(row.era)
    return lacking or "yes"


def lacks(row: Implementation) -> str | None:
    """Return the reason why this interpreter cannot run an implementation, or None."""
    if "cpu" in row.refusals() and not cuda_devices():
        return "needs a GPU"
    needed = [row.framework, *([row.library] if row.library else [])]
    missing = [name for name in needed if not _can_be_imported(name)]
    if missing and row.era:
        return APART
    return f"{missing[0]} is not installed" if missing else None


def in_era(name: str) -> str:
    """Return in words whether the era's environment exists or can be created."""
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
