"""Recognise files that lstmprof does not read, to explain what the user should do.

Example: "is an Nsight Compute report, which has no timeline".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lstmprof.base.errors import ForeignFileError, ProfileError
from lstmprof.formats.raw_file import RawFile, is_tar

_NOT_YET = (
    "give a profile of one of these formats: JSON of torch.profiler, TensorFlow, ONNX Runtime, "
    "MXNet or rocprofv3; SQLite of Nsight Systems, nvprof or rocprofv3; CSV of rocprofv3's "
    "kernels; XPlane; Perfetto"
)
_RECORD = "give a torch.profiler JSON, an .xplane.pb or an Nsight Systems SQLite export"

#: Table of known first bytes: (bytes, what the file is, what the user should do).
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs.github.com/spec/",
        "is a Git LFS pointer, not the profile",
        "run: git lfs pull",
    ),
    (b"\x1f\x8b", "is gzipped twice", "run gunzip on it once"),
    (b"PK\x03\x04", "is a zip archive", "unzip it, and give the profile inside"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd", "unpack it first: zstd -d"),
    (b"BZh", "is compressed with bzip2", "unpack it first: bunzip2"),
    (b"\xfd7zXZ\x00", "is compressed with xz", "unpack it first: unxz"),
    (b"%PDF", "is a PDF", _RECORD),
    (
        b"PAR1",
        "is a Parquet file",
        "give a profile, such as a torch.profiler JSON or the output of nsys export --type sqlite",
    ),
)
_ROCPROF = (
    "give a torch.profiler JSON, or record with rocprofv3 --runtime-trace --output-format json"
)
#: Message for execution traces of PyTorch and Chakra, which have operators but no times.
_EXECUTION_TRACE = (
    "is an execution trace (operators and their dependencies, but not when they ran)",
    "give the torch.profiler JSON of the same run; record_shapes=True adds the shapes",
)
#: Table of known file names: (endings, what the file is, what the user should do).
_NAMED = (
    ((".et",), *_EXECUTION_TRACE),
    ((".qdstrm",), "is an unfinished Nsight Systems stream", "convert it with QdstrmImporter"),
    ((".ncu-rep",), "is an Nsight Compute report, which has no timeline", _RECORD),
    (
        tuple(
            f".{what}.pb"
            for what in (
                *("kernel_stats", "tensorflow_stats", "op_stats", "overview_page"),
                *("input_pipeline", "memory_profile", "pod_viewer"),
            )
        ),
        "is a summary that TensorBoard made of a profile, without a timeline",
        "give the .xplane.pb or .trace.json.gz of that profile",
    ),
)


def refuse_by_content(raw: RawFile) -> None:
    """Raise ProfileError for content that no reader supports, such as a web page."""
    content = raw.content
    for magic, what, next_step in _MAGIC:
        if content.startswith(magic):
            raise ProfileError(raw.path, what, next_step)
    if is_tar(content):
        raise ProfileError(raw.path, "is a tar archive inside another file", "unpack it (tar xf)")
    if re.match(rb"\s*<(!doctype|html|\?xml|svg)", content[:512], re.IGNORECASE):
        raise ProfileError(raw.path, "is a web page, not a profile", _RECORD)


def refusal(raw: RawFile) -> ForeignFileError:
    """Return the error for a file that no reader recognised."""
    if raw.looks_like_json:
        what, next_step = _json(raw.json)
        return ForeignFileError(raw.path, what, next_step)
    name = str(raw.path).removesuffix(".gz")
    for endings, what, next_step in _NAMED:
        if name.endswith(endings):
            return ForeignFileError(raw.path, what, next_step)
    if raw.content.startswith(b"SQLite format 3\x00"):
        return ForeignFileError(
            raw.path, "is an SQLite database without tables of a known profiler", _RECORD
        )
    if b"NVPROF is profiling process" in raw.content[: 2**16]:
        return ForeignFileError(
            raw.path, "is text that nvprof printed, not a profile", "record with nvprof -o FILE"
        )
    head = raw.content[:256].decode("utf-8", errors="replace").rstrip("\ufffd")
    start = head.strip()[:24]
    if "\ufffd" not in head and all(c.isprintable() or c.isspace() for c in head):
        return ForeignFileError(
            raw.path,
            f"is not a profile (it begins with '{start}')",
            _RECORD,
        )
    return ForeignFileError(raw.path, "has an unknown format", _NOT_YET)


def _json(document: Any) -> tuple[str, str]:
    for recognised, what, next_step in _JSON:
        if recognised(document):
            return what, next_step
    if isinstance(document, dict):
        keys = ", ".join(str(key)[:24] for key in list(document)[:4]) or "none"
        return f"is JSON but not a profile (its keys: {keys})", _RECORD
    return "is JSON but not a profile", _RECORD


def trace_events(document: Any) -> list[Any] | None:
    """Return the events of a Chrome trace (a list, or ``traceEvents`` of an object), or None."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    return events if isinstance(events, list) else None


def consumed(events: list[Any]) -> Iterator[Any]:
    """Yield the events, and empty the list meanwhile to save memory."""
    events.reverse()
    while events:
        yield events.pop()


def _dicts(document: Any) -> Iterator[dict[str, Any]]:
    return (event for event in trace_events(document) or () if isinstance(event, dict))


def json_events(raw: RawFile) -> Iterator[dict[str, Any]]:
    """Return the events of a Chrome trace; none for another file."""
    return _dicts(raw.json) if raw.looks_like_json else iter(())


def _has_keys(*keys: str) -> Callable[[Any], bool]:
    return lambda document: isinstance(document, dict) and all(key in document for key in keys)


def _is_rocprof(document: Any) -> bool:
    if isinstance(document, dict) and any("rocprof" in str(key) for key in document):
        return True
    args = (e.get("args") for e in _dicts(document))
    return any(isinstance(a, dict) and "BeginNs" in a and "EndNs" in a for a in args)


#: Table of known JSON: (test of the parsed JSON, what the file is, what the user should do).
_JSON: tuple[tuple[Callable[[Any], bool], str, str], ...] = (
    (_is_rocprof, "is JSON of an older rocprof, which lstmprof does not read", _ROCPROF),
    (
        lambda document: (
            {str(e.get("cat")) for e in _dicts(document) if e.get("ph") == "B"} == {"PERF"}
        ),
        "is a CNTK profile, which has minibatch times but no operators",
        "use it to compare times only",
    ),
    (
        lambda document: {"B", "E"} <= {str(e.get("ph")) for e in _dicts(document)},
        "is a Chrome trace with begin/end events only (such as a Horovod timeline), which lstmprof "
        "does not read",
        _RECORD,
    ),
    (
        _has_keys("device_traces"),
        "is a memory snapshot as JSON",
        "give the pickle that torch.cuda.memory._dump_snapshot wrote",
    ),
    (_has_keys("schema", "nodes"), *_EXECUTION_TRACE),
    (_has_keys("workload_graph"), *_EXECUTION_TRACE),
    (
        lambda document: any("ph" in event for event in _dicts(document)),
        "is a Chrome trace of a tool other than torch.profiler, TensorFlow, ONNX Runtime or MXNet",
        _RECORD,
    ),
    (
        lambda document: trace_events(document) == [],
        "is a trace without events",
        "record the profile again",
    ),
)
