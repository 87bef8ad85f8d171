"""What a machine without a network lacks, carried along as wheels.

``python -m benchmarks.gpu.wheels DIR`` downloads them where there is a network, for Linux on x86-64
and the Python that ``--python`` names, in the versions of requirements.lock. ``unpacked`` lays
those that the other machine lacks, and no others, where they are imported: a wheel is an archive.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from lstmprof.errors import CaptureError

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"

#: Beyond torch, jax, numpy, pandas, pyarrow, psutil and nvidia-ml-py, which are often there:
#: what reads profiles, ranges, Flax with what importing it needs, and what runs the tests.
CARRIED = (
    *("isal", "msgspec", "protobuf", "fsspec", "nvtx"),
    *("flax", "msgpack", "PyYAML", "absl-py", "typing_extensions"),
    *("pytest", "hypothesis", "iniconfig", "pluggy", "packaging", "sortedcontainers", "Pygments"),
)
#: pip matches the glibc of a manylinux wheel exactly; newer ones than 2.28 are not asked for.
_GLIBCS = (28, 27, 26, 24, 17, 12, 5)
_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in _GLIBCS),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"),
)


def pinned(lock: Path = LOCK) -> list[str]:
    """The requirements of ``CARRIED``, ``name==version`` as in the lock."""
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines() if "==" in line]
    by_name = {_normal(line.partition("==")[0]): line for line in lines}
    return [by_name[_normal(name)] for name in CARRIED]


def _normal(name: str) -> str:
    """A project's name as packaging compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def download(folder: Path, python: str) -> list[Path]:
    """Fetch the wheels into ``folder`` with this interpreter's pip.

    Raises:
        CaptureError: pip cannot get one of them.
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
    """The wheels in ``wheels`` for this interpreter whose project it has not."""
    found = [path for path in sorted(wheels.glob("*.whl")) if _fits(path)]
    return [path for path in found if not _installed(path)]


def _fits(wheel: Path) -> bool:
    """Whether the wheel's tags (…-python-abi-platform.whl) are for any Python 3 or for this one."""
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
    """Unpack into ``place`` what is missing here; the names of what was.

    Raises:
        CaptureError: a file in ``wheels`` is no wheel.
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
    """Download into a folder what a machine without a network lacks for `make gpu`."""
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
