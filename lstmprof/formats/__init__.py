"""Readers of raw profiles: a file in, ``events.Profile`` out.

``read`` recognises a format by what is in the file, not by its name: profiles are renamed, gzipped
and copied about. Reports of Nsight Systems alone are known by theirs. A format is a module of this
folder with ``recognises(raw)`` and ``read(raw)``; the other modules here are what formats share.
Kineto's files, the largest, are tried in pieces first (``kineto.stream``). A profile is untrusted
input: whatever the bytes, the outcome is a ``Profile`` or one ``ProfileError``.
"""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Callable
from pathlib import Path

from lstmprof.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import foreign, raw_file
from lstmprof.formats.kineto import stream
from lstmprof.formats.raw_file import RawFile

#: The formats that are read, in the order in which a file is tried: a module of this folder each.
FORMATS = (
    "onnxruntime",  # on a GPU it has a category of Kineto's
    "mxnet",  # this format does, too
    "rocprofv3",
    "kineto",
    "autograd",
    "tf1_timeline",
    "trace_viewer",
    "perfetto",  # before xplane, whose planes are also the first field
    "xplane",
    "rocpd",
    "cuda.nvprof",
    "cuda.nsys",  # last: it also takes reports of Nsight Systems, by their name
)


def read(path: Path) -> Profile:
    """Return the profile in the file at ``path``, which may be gzipped.

    Raises:
        ProfileError: the file does not exist, is damaged or empty, or has no known format.
    """
    return read_raw(Path(path), functools.partial(raw_file.load, Path(path)))


def read_raw(label: Path | str, load: Callable[[], RawFile]) -> Profile:
    """Return the profile in the file that ``load`` returns; ``label`` is its place for messages.

    Raises:
        ProfileError: the file cannot be loaded, is damaged or empty, or has no known format.
    """
    try:
        streamed = stream.of_file(label) if isinstance(label, Path) else None
        if streamed:
            return streamed
        raw = load()
        if not isinstance(label, Path):
            streamed = stream.profile(label, io.BytesIO(raw.content))
            if streamed:
                return streamed
        foreign.refuse_by_content(raw.head)
        for name in FORMATS:
            reader = importlib.import_module(f"lstmprof.formats.{name}")
            if reader.recognises(raw):
                profile: Profile = reader.read(raw)
                return profile
        raise foreign.refusal(raw)
    except MemoryError as error:
        raise ProfileError(
            label, "needs more memory than this machine has", "profile fewer steps"
        ) from error
