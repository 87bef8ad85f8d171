"""The files of a large job, shared out to several workers: each reads its file into files.

::

    a job of ranks   a file ─ worker ─▶ sorted columns ─┐
                     a file ─ worker ─▶ sorted columns ─┼─ this process ─▶ one run
                     a file ─ worker ─▶ sorted columns ─┘
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lstmprof.runs.ingest import Ingested, Task, read
from lstmprof.scratch import remove


@dataclass(frozen=True)
class Share(Task):
    """One file of a job, to be read into a folder in ``base``, which all workers see."""

    base: Path = field(kw_only=True)

    def done(self) -> Ingested:
        """The profile, to be joined with the others of its job, or why there is none."""
        self.base.mkdir(exist_ok=True)
        (source,) = self.group
        return read(source, self.base)

    def kept(self) -> Ingested | None:
        """None: it makes no run."""
        return None


def is_large(task: Task, todo: Sequence[Task], workers: int) -> bool:
    """Whether ``task`` is a job of which one of ``workers`` would have more than its share.

    What is no file here counts nothing: all of an archive would be read for each file in it.
    """
    whole = sum(other.file_bytes for other in todo)
    return len(task.group) > 1 and task.file_bytes * workers > whole


def shared_out(task: Task, base: Path) -> list[Task]:
    """A share for each file of ``task``, in order."""
    return [
        Share([source], task.name, task.out, task.force, task.step_range, command="", base=base)
        for source in task.group
    ]


def joined(task: Task, parts: Sequence[Task], outcomes: Iterator[Ingested]) -> Ingested:
    """What becomes of ``task``, of whose ``parts`` the ``outcomes`` come next; or itself, alone."""
    if not isinstance(parts[0], Share):
        return next(outcomes)
    try:
        return task.joined(list(itertools.islice(outcomes, len(parts))))
    finally:
        remove(parts[0].base)
