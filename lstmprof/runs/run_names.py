"""What the runs of raw profiles are called: after their files, each by a name of its own."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lstmprof.formats.sources import Source, profile_name
from lstmprof.runs.directory import MOST_NAME_BYTES

_DIGEST_DIGITS = 8


def run_names(word: Path | str, groups: Sequence[Sequence[Source]]) -> list[str]:
    """A name for the run of each group: the file's, of several what theirs begin with.

    Each is a name of its own, and short enough for a folder.
    """
    if len(groups) == 1 and len(groups[0]) > 1:
        return [_fitting(profile_name(word))]
    names = [_common_name(group) for group in groups]
    names = [
        f"{profile_name(_folder_name(group))}--{name}" if is_shared else name
        for name, is_shared, group in zip(names, _shared(names), groups, strict=True)
    ]
    return [
        _fitting(name, str(group[0].label).removeprefix(str(word)) if is_shared else "")
        for name, is_shared, group in zip(names, _shared(names), groups, strict=True)
    ]


def own_name(source: Source) -> str:
    """The name of the run of one file alone."""
    return _fitting(profile_name(source.name))


def _shared(names: Sequence[str]) -> list[bool]:
    taken = Counter(map(_fitting, names))
    return [taken[_fitting(name)] > 1 for name in names]


def _fitting(name: str, place: str = "") -> str:
    """Shorten ``name`` to a folder name's bytes, with a digest if it was cut.

    ``place``, if given, makes the digest unique among runs of this name.
    """
    if not place and len(name.encode()) <= MOST_NAME_BYTES:
        return name
    digest = hashlib.sha256(f"{place}|{name}".encode(errors="surrogateescape")).hexdigest()
    ending = f"-{digest[:_DIGEST_DIGITS]}"
    room = MOST_NAME_BYTES - len(ending)
    return name.encode()[:room].decode(errors="ignore") + ending


def _folder_name(group: Sequence[Source]) -> str:
    return group[0].folder.rpartition("/")[2]


def _common_name(group: Sequence[Source]) -> str:
    names = [profile_name(source.name) for source in group]
    if len(names) == 1:
        return names[0]
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    prefix = re.sub(r"[-_.]?(rank|worker|host|node)?[-_.\d]*$", "", "".join(a for a, *_ in alike))
    return prefix or _folder_name(group) or "profile"
