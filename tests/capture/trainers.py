"""An interpreter with Lightning, Accelerate and Transformers, in which lstmprof runs, too."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from lstmprof.base.errors import CaptureError
from lstmprof.capture.interpreters.environments import environment
from lstmprof.runs.directory import cache_folder

PACKAGES = (
    *("torch==2.13.0", "lightning>=2.5", "transformers[torch]>=4.50"),
    *("tensorboard", "mlflow-skinny", "wandb"),
)


def python_of_trainers() -> str:
    """Return the interpreter, or skip the test if it cannot be made."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    words = project["project"]["dependencies"]
    needed = [requirement.partition(";")[0].strip() for requirement in words]
    try:
        made = environment([*needed, *PACKAGES], cache_folder() / "environments").made()
    except CaptureError as fault:
        pytest.skip(str(fault))
    return str(made)
