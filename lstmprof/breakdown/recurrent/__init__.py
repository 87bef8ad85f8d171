"""Recurrent layers in a profile: how they run, and what decides it.

::

    events ─ profiles (one file a way in which a profile shows them) ─▶ calls ─ spent ─▶ their times
                loop, cells, network: what is known of a call's network
"""

from __future__ import annotations

from lstmprof.breakdown.recurrent.profiles import recurrent_calls

__all__ = ["recurrent_calls"]
