"""Recurrent layers in a profile: how they run, and what decides it.

::

    events ─ profiles (one file a way in which a profile shows them) ─▶ calls ─ spent ─▶ their times
                loop, cells, network: what is known of a call's network
"""
