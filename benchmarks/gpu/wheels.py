"""What a machine without a network lacks, carried along as wheels.

``python -m benchmarks.gpu.wheels DIR`` downloads them where there is a network, for Linux on x86-64
and the Python that ``--python`` names, in the versions of requirements.lock. ``unpacked`` lays
those that the other machine lacks, and no others, where they are imported: a wheel is an archive.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import click

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"

#: Beyond torch, jax, numpy, pandas, pyarrow, click, rich, psutil and nvidia-ml-py, which are there:
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
        click.ClickException: pip cannot get one of them.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp"]
    command += [f"--python-version={python}", f"--dest={folder}"]
    command += [f"--platform={platform}" for platform in _PLATFORMS]
    done = subprocess.run([*command, *pinned()], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise click.ClickException(f"pip: {said[-1] if said else done.stderr.strip()}")
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
        click.ClickException: a file in ``wheels`` is no wheel.
    """
    names = []
    for path in missing(wheels):
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(place)
        except zipfile.BadZipFile as fault:
            raise click.ClickException(f"{path}: {fault}; download it again") from fault
        names.append(path.name.partition("-")[0])
    return names


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--python", default="3.12", show_default=True, help="Python of the other machine.")
def command(folder: Path, python: str) -> None:
    """Download into FOLDER what a machine without a network lacks for `make gpu`.

    \b
    Example:
      python -m benchmarks.gpu.wheels build/wheels --python 3.12
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = download(folder, python)
    size = sum(path.stat().st_size for path in found)
    click.echo(f"{folder}: {len(found)} wheels for Python {python}, {size / 1e6:.1f} MB")
    click.echo(f"next, there: make gpu WHEELS={folder}", err=True)


if __name__ == "__main__":
    command()
