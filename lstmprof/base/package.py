"""The version and the folder of this package, and version numbers of any package.

This file uses only the standard library and Python 3.7, because capture workers import it.
"""

from __future__ import annotations

import os
import re
from typing import Tuple

__version__ = "1.0.0rc1"

#: The folder ``lstmprof``; symbolic links in its path are not resolved.
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def version_numbers(version: str) -> Tuple[int, ...]:
    """Return ``1.4.0`` as (1, 4, 0) and ``2.13.0+cpu`` as (2, 13, 0), for comparisons."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))
