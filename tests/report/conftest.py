"""Charts and the page are tested where the library that draws them is installed."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("altair") else ["test_*.py"]
