"""The version and folder of lstmprof, and a parser of version numbers.

Capture workers import this file, so the file uses only the standard library and Python 3.7.
"""

from __future__ import annotations

import os
import re
from typing import Tuple

__version__ = "1.0.0rc1"

#: Path of the package's folder, without resolving symbolic links.
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def version_numbers(version: str) -> Tuple[int, ...]:
    """Parse ``2.13.0+cpu`` as (2, 13, 0), to compare versions."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))
