"""Find the recurrent layers of a profile, and how they run.

::

    events ─ profiles (one file per way in which a profile shows layers) ─▶ calls ─ spent ─▶ times
                loop, cells, network: the sizes of a call's network
"""
