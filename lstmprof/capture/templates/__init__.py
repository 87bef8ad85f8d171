"""Files to begin an implementation of one's own with, one a framework; each runs as it is."""

from __future__ import annotations

from importlib import resources

#: Whose template there is, by its file
TEMPLATES = ("torch", "tensorflow", "keras", "jax")


def template_text(name: str) -> str:
    """The template ``name``, one of ``TEMPLATES``."""
    return (resources.files(__name__) / f"{name}.py").read_text(encoding="utf-8")
