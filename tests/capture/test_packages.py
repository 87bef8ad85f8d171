"""What a worker tells of the packages that are installed where it runs."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from lstmprof.capture.worker.metadata import packages


class Distribution:
    def __init__(self, name: str | None, version: str | None) -> None:
        self._name, self._version = name, version
        self.times_parsed = 0

    @property
    def metadata(self) -> dict[str, Any]:
        self.times_parsed += 1
        if self._name == "half-removed":
            raise OSError("METADATA is gone")
        return {"Name": self._name, "Version": self._version}

    @property
    def version(self) -> Any:
        return self.metadata["Version"]


def test_every_package_is_told_once_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("torch", "2.13.0"), ("Jinja2", "3.1"), ("torch", "1.0"), (None, "1"), ("old", None)]
    some = [Distribution(*pair) for pair in [*found, ("half-removed", "1")]]
    monkeypatch.setattr(metadata, "distributions", lambda: iter(some))
    assert packages() == {"Jinja2": "3.1", "old": None, "torch": "2.13.0"}
    assert {distribution.times_parsed for distribution in some} == {1}
    assert list(packages() or {}) == ["Jinja2", "old", "torch"]


def test_those_that_are_here_are_told_with_their_versions() -> None:
    assert (packages() or {})["numpy"] == metadata.version("numpy")
