"""Sets of old package versions that work together ("eras").

An era also pins what old wheels leave open: TensorFlow 1.15 accepts any protobuf version, but fails
with a new one. Users choose an era by ``--era torch-1.4.0`` or by ``--with torch==1.5.0``. The
versions were tried on x86-64 Linux, from PyPI, in 2026-11. Sizes are in MB.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from lstmprof.base.errors import UsageError, unknown_name
from lstmprof.base.package import version_numbers

#: Pattern of ``name[extra]==1.2.3`` or ``name @ file:…``; its groups are the name and the rest.
_SPECIFIER = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*(.*)")


@dataclasses.dataclass(frozen=True)
class Era:
    """Old package versions that work together, and suitable Python versions."""

    name: str
    packages: tuple[str, ...]  # pip's specifiers and options; the first is ``package==version``
    pythons: tuple[str, ...]  # minor versions, the preferred one first
    # oldest and newest version of the framework that runs with these packages
    versions: tuple[str, str]
    download_mb: int | None = None
    disk_mb: int | None = None
    serves: bool = True  # ``--with`` may choose this era
    tried: bool = True  # it was installed and ran an LSTM; other rows are the best guess

    @property
    def package(self) -> str:
        """Return the framework's package name, such as ``torch``."""
        return package_of(self.packages[0])

    def has(self, version: str) -> bool:
        """Return whether the era supports this version of its framework."""
        least, most = (version_numbers(text) for text in self.versions)
        numbers = version_numbers(version)
        return least <= numbers and numbers[: len(most)] <= most  # 1.15.5 counts as 1.15

    def includes(self, specifier: str) -> bool:
        """Return whether a specifier such as ``torch==1.5.0`` pins a version of the era."""
        version = version_of(specifier)
        same = package_of(specifier) == self.package
        return same and version is not None and self.has(version)


_TYPED = "typing_extensions==4.7.1"  # the last version for Python 3.7
_NUMPY_3_7 = "numpy==1.21.6"  # the last version for Python 3.7
#: Packages of the environment for Theano and the small libraries on top of Theano.
_THEANO = ("Theano==1.0.5", _NUMPY_3_7, "scipy==1.7.3", "h5py==2.10.0", "--only-binary=h5py")
_LASAGNE, _KERAS = "Lasagne==0.1", "keras==2.1.6"

TABLE: tuple[Era, ...] = (
    Era("torch-1.0.0", ("torch==1.0.0", _NUMPY_3_7), ("3.7",), ("1.0", "1.3"), 590, 1200),
    Era("torch-1.4.0", ("torch==1.4.0", _NUMPY_3_7), ("3.7", "3.8"), ("1.4", "1.5"), 753, 1400),
    Era(
        "torch-1.8.1",
        ("torch==1.8.1", _NUMPY_3_7, _TYPED),
        ("3.8", "3.7"),
        ("1.6", "1.10"),
        804,
        1700,
    ),
    # the 3290 MB include four NVIDIA wheels, without which torch 1.13.1 cannot be imported
    Era(
        "torch-1.13.1",
        ("torch==1.13.1", _NUMPY_3_7, _TYPED),
        ("3.8", "3.9", "3.10", "3.7"),
        ("1.11", "1.13"),
        disk_mb=3290,
    ),
    # NumPy 1, because PyTorch runs with NumPy 2 only since PyTorch 2.3 (release notes)
    Era(
        "torch-2.2.2",
        ("torch==2.2.2", "numpy==1.26.4"),
        ("3.11", "3.10", "3.9"),
        ("2.0", "2.2"),
        disk_mb=5000,
    ),
    # protobuf 3, because protobuf 4 refuses code generated for protobuf 3
    Era(
        "tensorflow-1.15.5",
        ("tensorflow==1.15.5", "protobuf==3.20.3", "numpy==1.18.5"),
        ("3.7",),
        ("1.13", "1.15"),
        disk_mb=590,
    ),
    # protobuf 3.19, because TensorFlow 2.8 cannot be installed together with protobuf 3.20
    Era(
        "tensorflow-2.8.4",
        ("tensorflow==2.8.4", "protobuf==3.19.6"),
        ("3.8", "3.9", "3.10", "3.7"),
        ("2.5", "2.11"),
        tried=False,
    ),
    Era(
        "tensorflow-cpu-2.8.4",
        ("tensorflow-cpu==2.8.4", "protobuf==3.19.6"),
        ("3.8", "3.9", "3.10", "3.7"),
        ("2.5", "2.11"),
        disk_mb=990,
    ),
    Era("theano-1.0.5", (*_THEANO, _LASAGNE, _KERAS), ("3.7",), ("1.0", "1.0"), disk_mb=240),
    Era("lasagne-0.1", (_LASAGNE, *_THEANO, _KERAS), ("3.7",), ("0.1", "0.1"), disk_mb=240),
    # with TensorFlow, Keras's default backend, because ``--with keras==2.1.6`` names no backend
    Era(
        "keras-2.1.6-tensorflow",
        (
            *("keras==2.1.6", "tensorflow==1.15.5", "protobuf==3.20.3", "numpy==1.18.5"),
            *("scipy==1.5.4", "h5py==2.10.0", "--only-binary=h5py"),
        ),
        ("3.7",),
        ("2.1", "2.3"),
        disk_mb=680,
    ),
    Era(
        "keras-2.1.6-theano",
        (_KERAS, *_THEANO, _LASAGNE),
        ("3.7",),
        ("2.1", "2.3"),
        disk_mb=240,
        serves=False,
    ),
    Era("mxnet-1.9.1", ("mxnet==1.9.1", _NUMPY_3_7), ("3.7", "3.8"), ("1.5", "1.9"), 277, 270),
    Era("chainer-7.8.1", ("chainer==7.8.1", _NUMPY_3_7), ("3.7",), ("6.0", "7.8"), 93, 80),
    Era(
        "caffe2-1.8.1",
        ("torch==1.8.1", _NUMPY_3_7, _TYPED, "future", "six", "protobuf==3.20.3"),
        ("3.8",),
        ("1.0", "1.8"),
        804,
        1700,
        serves=False,
    ),
)

NAMES = tuple(era.name for era in TABLE)


def find(name: str) -> Era:
    for era in TABLE:
        if era.name == name:
            return era
    raise unknown_name("era", name, NAMES)


def era_of_packages(packages: Sequence[str]) -> Era | None:
    """Find old versions and a Python that suit packages such as ``torch==1.5.0``."""
    serving = [[era for era in TABLE if era.serves and era.includes(p)] for p in packages]
    eras = [matches[0] for matches in serving if matches]
    if not eras:
        return None
    pythons = [p for p in eras[0].pythons if all(p in era.pythons for era in eras)]
    if not pythons:
        raise UsageError(
            f"no single Python version runs {' and '.join(packages)}", "capture them separately"
        )
    return dataclasses.replace(
        eras[0],
        name=" ".join(packages),
        packages=with_pins(packages, [pin for era in eras for pin in era.packages[1:]]),
        pythons=tuple(pythons),
    )


def with_pins(packages: Sequence[str], pins: Sequence[str]) -> tuple[str, ...]:
    """Add the pinned version of each package that the user did not name."""
    chosen = list(dict.fromkeys(packages))
    for pin in pins:
        if package_of(pin) not in map(package_of, chosen):
            chosen.append(pin)
    return tuple(chosen)


def package_of(specifier: str) -> str:
    """Return a requirement's package: ``My_Package==1.2`` -> ``my-package``."""
    match = _SPECIFIER.match(specifier)
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else specifier  # PEP 503


def version_of(specifier: str) -> str | None:
    """Return a requirement's version: ``torch==1.5.*`` -> ``1.5``."""
    match = _SPECIFIER.match(specifier)
    exact = match and re.fullmatch(r"==\s*(\d[\w.+!]*?)(?:\.\*)?", match[2].strip())
    return exact[1] if exact else None
