"""What the profiles that tests make lack, as a user is told it."""

from __future__ import annotations

from lstmprof.breakdown.lacks import Lack, lacks_of
from lstmprof.events import Profile
from lstmprof.events.annotate import annotated
from lstmprof.runs.ingest import described
from lstmprof.runs.metadata import run_info


def lacks(profile: Profile) -> dict[str, Lack]:
    """What ``profile`` lacks when it is ingested, by kind."""
    events = annotated(profile.events, captured=False)
    info = run_info({**described("profile", profile, events), "source": "ingest"})
    return {lack.kind: lack for lack in lacks_of(info, info.recorded or ())}
