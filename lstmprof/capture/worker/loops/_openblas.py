"""The OpenBLAS in NumPy's wheel, for a compiler to link to."""

from __future__ import annotations

import glob
import os
from typing import Optional


def linker_flags(packages: str) -> Optional[str]:
    """What links to the OpenBLAS of the NumPy in the folder ``packages``; None where none can.

    The library is the one that NumPy has loaded, so that both share its threads. Since 1.22 its
    functions have other names (``sgemm_64_``) and 64-bit sizes, which no other code expects.
    """
    place = os.path.join(packages, "numpy.libs")
    if set(" ,") & set(place):  # such a flag is cut in two there
        return None
    for path in sorted(glob.glob(os.path.join(glob.escape(place), "libopenblas*.so"))):
        name = os.path.basename(path)[len("lib") : -len(".so")]
        if not name.startswith("openblas64"):
            return "-L{} -l{}".format(place, name)
    return None
