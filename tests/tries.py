"""What the second tries of tests that measure have to tell each other."""

from __future__ import annotations

import pytest

#: How many tries have failed in this process: what they left on the disk is of no use.
EARLIER_TRIES = pytest.StashKey[int]()
