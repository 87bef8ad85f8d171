"""What a field of run.json is made of: its type, its meaning, and when it is null."""

from typing import Annotated, TypeAlias

import msgspec

MADE_ELSEWHERE = "the run is an ingested profile, or a run of your own code that does not record it"
UNREAD = "the machine did not report it, or the run is an ingested profile"
NO_GPU = "no GPU was used, NVML did not report it, or the run is an ingested profile"
NOT_MEASURED = "it was not measured"
OLDER = "the machine did not report it, or an older lstmprof wrote the run"
FOREIGN = "another program wrote the run"
NEVER = ""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Text: TypeAlias = str | None
Int: TypeAlias = Int64 | None
Real: TypeAlias = float | None
Flag: TypeAlias = bool | None
Texts: TypeAlias = tuple[str, ...] | None
Ints: TypeAlias = tuple[Int64, ...] | None
Reals: TypeAlias = tuple[float, ...] | None
Versions: TypeAlias = dict[str, str | Int64 | None] | None
Variables: TypeAlias = dict[str, str] | None


def fact(
    meaning: str, null_when: str = MADE_ELSEWHERE, unit: str = "", column: str = ""
) -> msgspec.Meta:
    """What a field of run.json says; ``column`` is its name in SQL where that is another."""
    extra = {"null_when": null_when, "unit": unit, "column": column}
    return msgspec.Meta(description=meaning, extra=extra)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of run.json; a field that a later version writes is passed over."""
