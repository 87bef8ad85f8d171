"""Read raw profiles: a file in, ``events.Profile`` out.

A format is a module with ``recognises(raw)`` and ``read(raw)``. ``read`` recognises the format by
the file's content, because users rename and gzip profiles. A profile is untrusted: ``read`` either
returns a ``Profile`` or raises ``ProfileError``, whatever the bytes.
"""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Callable
from pathlib import Path

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import foreign, raw_file
from lstmprof.formats.kineto import stream
from lstmprof.formats.raw_file import RawFile

#: Names of modules, one per format, in the order in which ``read`` tries them.
FORMATS = (
    "memory_snapshot",
    "onnxruntime",  # before kineto, whose categories include that of ONNX Runtime's GPU events
    "mxnet",  # before kineto, whose categories include that of MXNet's operators
    "rocm.rocprofv3",
    "kineto",
    "kineto.autograd",
    "xplane.tf1_timeline",
    "xplane.trace_viewer",
    "perfetto",  # before xplane: files of both begin with the protobuf field 1
    "xplane",
    "rocm.rocpd",
    "cuda.nvprof",
    "cuda.nsys",  # last: it also recognises reports of Nsight Systems, by their name
)


def read(path: Path) -> Profile:
    """Read the profile at ``path``, which may be gzipped."""
    return read_raw(Path(path), functools.partial(raw_file.load, Path(path)))


def read_raw(label: Path | str, load: Callable[[], RawFile]) -> Profile:
    """Read the profile that ``load`` opens; errors name the profile ``label``."""
    try:
        # try Kineto first, because Kineto traces are large and readable in pieces
        streamed = stream.profile_of_file(label) if isinstance(label, Path) else None
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
