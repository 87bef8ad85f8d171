"""Download packages as wheels, and unpack them on a machine without internet access.

``python -m benchmarks.gpu.wheels DIR`` downloads the wheels for Linux on x86-64 and the Python that
``--python`` names, in the versions of requirements.lock. On the other machine, ``unpacked`` unpacks
those wheels whose packages are not installed there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from lstmprof.base.errors import CaptureError

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"

#: Packages for reading profiles, for NVTX ranges, for Flax, and for the tests. It is assumed that
#: torch, jax, numpy, pandas, pyarrow, psutil and nvidia-ml-py are installed on the other machine.
CARRIED = (
    *("isal", "msgspec", "protobuf", "fsspec", "nvtx"),
    *("flax", "msgpack", "PyYAML", "absl-py", "typing_extensions"),
    *("pytest", "hypothesis", "iniconfig", "pluggy", "packaging", "sortedcontainers", "Pygments"),
)
#: Minor versions of glibc 2 whose manylinux wheels pip may download. pip needs each one named.
_GLIBCS = (28, 27, 26, 24, 17, 12, 5)
_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in _GLIBCS),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"),
)


def pinned(lock: Path = LOCK) -> list[str]:
    """Return the lines ``name==version`` of the file ``lock`` for the packages ``CARRIED``."""
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines() if "==" in line]
    by_name = {_normal(line.partition("==")[0]): line for line in lines}
    return [by_name[_normal(name)] for name in CARRIED]


def _normal(name: str) -> str:
    """Return the name of a package in normalised form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def download(folder: Path, python: str) -> list[Path]:
    """Download the wheels for version ``python`` into ``folder`` with pip; return their paths.

    Raises:
        CaptureError: pip cannot download a wheel.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp"]
    command += [f"--python-version={python}", f"--dest={folder}"]
    command += [f"--platform={platform}" for platform in _PLATFORMS]
    done = subprocess.run([*command, *pinned()], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise CaptureError(f"pip: {said[-1] if said else done.stderr.strip()}")
    return sorted(folder.glob("*.whl"))


def missing(wheels: Path) -> list[Path]:
    """Return the files in the folder ``wheels`` that fit this Python and are not installed."""
    found = [path for path in sorted(wheels.glob("*.whl")) if _fits(path)]
    return [path for path in found if not _installed(path)]


def _fits(wheel: Path) -> bool:
    """Return whether the tags in the name (…-python-abi-platform.whl) allow this Python."""
    python, abi, _ = wheel.stem.split("-")[-3:]
    own = "cp{}{}".format(*sys.version_info[:2])
    return abi == "abi3" or bool({own, "py3", own.replace("cp", "py")} & set(python.split(".")))


def _installed(wheel: Path) -> bool:
    try:
        metadata.version(wheel.name.partition("-")[0])
    except metadata.PackageNotFoundError:
        return False
    return True


def unpacked(wheels: Path, place: Path) -> list[str]:
    """Unpack the wheels of missing packages into ``place``; return the names of these packages.

    Raises:
        CaptureError: a file in ``wheels`` is not a wheel.
    """
    names = []
    for path in missing(wheels):
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(place)
        except zipfile.BadZipFile as fault:
            raise CaptureError(f"{path}: {fault}; download it again") from fault
        names.append(path.name.partition("-")[0])
    return names


def main() -> int:
    """Download the packages for `make gpu` on a machine without internet access into a folder."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu.wheels", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="Python of the other machine (3.12).")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    try:
        found = download(asked.folder, asked.python)
    except CaptureError as error:
        print(error, file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in found)
    print(f"{asked.folder}: {len(found)} wheels for Python {asked.python}, {size / 1e6:.1f} MB")
    print(f"next, there: make gpu WHEELS={asked.folder}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
