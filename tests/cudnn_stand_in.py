"""The library of ``cudnn_stand_in.c`` under the names of cuDNN, the CUDA runtime and the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
NAMES = ("libcudnn.so.9", "libcudart.so.12", "libcuda.so.1")


def built(folder: Path) -> Path:
    """``folder`` with the libraries in it, to be named in LD_LIBRARY_PATH."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile the stand-in of cuDNN")
    library = folder / "stand_in.so"
    # -Bsymbolic: TensorFlow exports functions of the same names to the whole process
    options = ["-O1", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", os.fspath(library)]
    subprocess.run(["gcc", *options, os.fspath(SOURCE), "-lm"], check=True)
    for name in NAMES:
        (folder / name).symlink_to(library)
    return folder
