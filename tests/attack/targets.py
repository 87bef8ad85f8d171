"""What is attacked: every reader, packed files and run directories; a target is a row of a table.

::

    seeds ─ mutated (a number draws it) ─▶ bytes ─ feed ─▶ a Tally: accepted and exact, or refused
"""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attack import (
    archive_mutations,
    bytes_mutations,
    json_mutations,
    run_mutations,
    seeds,
    sqlite_mutations,
    wire_mutations,
)
from attack.oracle import (
    BusyError,
    Tally,
    bounded,
    bounded_alone,
    check_account,
    check_times,
    holds,
)

from lstmprof import formats
from lstmprof.base.errors import LstmprofError, ProfileError
from lstmprof.events import Profile
from lstmprof.formats import raw_file, sources
from lstmprof.runs.run import open_run

Mutate = Callable[[bytes, random.Random], bytes]
Feed = Callable[[bytes, Tally, Path], None]
LABEL = "attacked.profile"
#: One input in so many is read from a file of the disk.
_FROM_DISK = 16
#: Larger seeds are tried so much more seldom, as they take longer.
_SMALL = 4096


@dataclass(frozen=True)
class Target:
    """What is attacked under ``name``; ``feed`` reads an input, in a scratch folder of its own."""

    name: str
    seeds: Callable[[], list[bytes]]
    mutate: Mutate
    feed: Feed

    def drawn(self, number: int, contents: Sequence[bytes]) -> bytes:
        """The input ``number`` of those that are made of ``contents``: the same at every call."""
        draw = random.Random(f"{self.name} {number}")
        small = [content for content in contents if len(content) <= _SMALL] or contents
        content = draw.choice(contents if draw.random() < 0.03 else small)
        return self.mutate(content, draw)

    def attack(self, content: bytes, tally: Tally, folder: Path) -> None:
        """Read ``content``, and check what comes of it.

        Raises:
            Exception: whatever a reader raised that is no error of its own, or a broken promise.
        """
        tally.inputs += 1
        try:
            with bounded():
                self.feed(content, tally, folder)
        except BusyError:
            with bounded_alone():
                self.feed(content, Tally(), folder)


def _read(content: bytes, tally: Tally, folder: Path) -> None:
    """By the reader whose file it is, mostly from memory."""
    if zlib.crc32(content) % _FROM_DISK == 0:
        _read_file(content, tally, folder)
        return
    _tell(
        content,
        tally,
        lambda: formats.read_raw(LABEL, lambda: raw_file.raw_of_bytes(LABEL, content)),
    )


def _read_file(content: bytes, tally: Tally, folder: Path) -> None:
    """The same from a file of the disk, as users have it."""
    file = folder / LABEL
    file.write_bytes(content)
    _tell(content, tally, lambda: formats.read(file))


def _tell(content: bytes, tally: Tally, read: Callable[[], Profile]) -> None:
    try:
        profile = read()
    except ProfileError as error:
        tally.refuse(error, LABEL)
    else:
        tally.accept(content, profile)


def _read_sources(content: bytes, tally: Tally, folder: Path) -> None:
    """As a file that a user gives, which may be an archive of others."""
    file = folder / LABEL
    file.write_bytes(content)
    try:
        groups = sources.groups(file)
    except LstmprofError as error:
        tally.refuse(error, LABEL)
        return
    accepted: list[Profile] = []
    for source in (source for group in groups for source in group):
        try:
            accepted.append(formats.read_raw(source.label, source.load))
        except LstmprofError as error:
            tally.refuse(error, LABEL)
    for profile in accepted:
        tally.accept(content, profile)


def _open(content: bytes, tally: Tally, folder: Path) -> None:
    """As a run's directory: its record, then each of its tables."""
    place = folder / "attacked.run"
    run_mutations.write(content, place)
    try:
        run = open_run(place)
        events = run.events()
        run.narrow_events(("start_ns", "kind"))
        run.timings(), run.samples()
    except LstmprofError as error:
        tally.refuse(error, "attacked.run")
        return
    holds(isinstance(run.name, str), "a run whose name is no text")
    events.validate(full=True)
    check_times(events)
    tally.accepted += 1
    if tally.is_account_due():
        check_account(events)
        tally.ledgers += 1


@functools.cache
def _tokens() -> list[object]:
    makers = (seeds.kineto, seeds.autograd, seeds.mxnet, seeds.onnxruntime, seeds.trace_viewer)
    small = [maker()[0] for maker in (*makers, seeds.tf1_timeline)]
    return json_mutations.tokens(small)


def _json(content: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.15:
        return bytes_mutations.mutated(content, draw, _plain())
    return json_mutations.mutated(content, draw, _tokens())


@functools.cache
def _plain() -> tuple[bytes, ...]:
    makers = (seeds.kineto, seeds.onnxruntime, seeds.trace_viewer, seeds.xplane, seeds.foreign)
    return tuple(maker()[0] for maker in makers)


def _pickle(content: bytes, draw: random.Random) -> bytes:
    """Changes of the pickled values, or of the bytes; ``content`` is a seed."""
    if draw.random() < 0.7:
        changed = json_mutations.mutated(
            json.dumps(pickle.loads(content)).encode(), draw, _tokens()
        )
        with contextlib.suppress(ValueError, RecursionError):
            return pickle.dumps(json.loads(changed), draw.randint(2, 5))
    return bytes_mutations.mutated(content, draw, seeds.memory_snapshot())


def _packed(content: bytes, draw: random.Random) -> bytes:
    return archive_mutations.mutated(content, draw, _plain()[:4])


def _foreign(content: bytes, draw: random.Random) -> bytes:
    """Small changes, or any bytes behind the first ones of some kind of file."""
    if draw.random() < 0.3:
        return content[: draw.randint(0, 40)] + draw.randbytes(draw.randint(0, 200))
    return bytes_mutations.mutated(content, draw, _plain())


#: By name; a format's name is its module's.
TARGETS = {
    target.name: target
    for target in (
        Target("memory_snapshot", seeds.memory_snapshot, _pickle, _read),
        Target("onnxruntime", seeds.onnxruntime, _json, _read),
        Target("mxnet", seeds.mxnet, _json, _read),
        Target("rocm.rocprofv3", seeds.rocprofv3, _json, _read),
        Target("rocprofv3_csv", seeds.rocprofv3_csv, _foreign, _read),
        Target("kineto", seeds.kineto, _json, _read),
        Target("kineto.autograd", seeds.autograd, _json, _read),
        Target("xplane.tf1_timeline", seeds.tf1_timeline, _json, _read),
        Target("xplane.trace_viewer", seeds.trace_viewer, _json, _read),
        Target("perfetto", seeds.perfetto, wire_mutations.mutated, _read),
        Target("xplane", seeds.xplane, wire_mutations.mutated, _read),
        Target("rocm.rocpd", seeds.rocpd, sqlite_mutations.mutated, _read_file),
        Target("cuda.nvprof", seeds.nvprof, sqlite_mutations.mutated, _read_file),
        Target("cuda.nsys", seeds.nsys, sqlite_mutations.mutated, _read_file),
        Target("packed", seeds.packed, _packed, _read_sources),
        Target("foreign", seeds.foreign, _foreign, _read),
        Target("run directory", seeds.runs, run_mutations.mutated, _open),
    )
}
