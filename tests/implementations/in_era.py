"""The interpreters of eras that are installed on this machine; tests install none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lstmprof.base.errors import LstmprofError
from lstmprof.capture.interpreters.environments import environment_for
from lstmprof.runs.directory import cache_folder


def interpreter_of(era: str) -> Path:
    """That of the environment of ``era`` in the user's cache; skips where it is not there."""
    try:
        environment = environment_for((), era)
    except LstmprofError as fault:
        pytest.skip(str(fault))
    for cache in (cache_folder(), Path.home() / ".cache" / "lstmprof"):
        there = dataclasses.replace(environment, cache=cache / "environments")
        if there.is_made:
            return there.interpreter
    pytest.skip(f"{era} is not installed: lstmprof capture --era {era} does that")
