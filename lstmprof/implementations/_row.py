"""A row of the table of implementations: what one is called, where it lies, what it cannot do.

Keeps to the standard library and Python 3.7.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Dict, Mapping, Optional, Tuple

from lstmprof.implementations._refusals import FRAMEWORKS, UNUSUAL

#: How a layer is computed: a cell written in the framework's operators, time step after time step;
#: one operator, or one compiled region, a time step; one operator a layer.
LOOP, CELL_OP, LAYER_OP = FORMS = ("loop", "cell op", "layer op")


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One row of the table.

    ``form`` is one of ``FORMS``, ``form_on_gpu`` where it is another on a GPU. ``library`` is whose
    layer it is, where it is neither the framework's own nor written here; ``by_hand`` whether the
    cell is written here in operators, so that what is in it can be changed.
    ``refuses`` maps what this row cannot do to the reason, in the words that a user is shown:
    ``cpu``, ``cuda``, ``train``, ``forward``, ``bidirectional``, ``layers``, ``ctc``,
    ``cuda-graph``, ``xla``, ``keep-denormals``, ``no-onednn``, ``anomaly``, ``deterministic``, a
    precision, or two at once (``tf32 on cpu``, ``cuda-graph on cpu``, ``xla of ctc``).
    What its framework cannot do is in ``FRAMEWORKS``.
    """

    name: str
    file: str  # dotted, beneath this folder
    framework: str  # a key of FRAMEWORKS: which loop in capture/ runs it
    form: str
    summary: str
    refuses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: Tuple[str, ...] = ()
    knows: Tuple[str, ...] = ()  # of UNUSUAL
    settles_after: int = 3  # iterations until it takes as long as ever after
    form_on_gpu: Optional[str] = None
    library: str = ""
    by_hand: bool = False
    era: str = ""  # of capture.eras: what it is run with where this interpreter has none of it
    since: str = ""  # the first version of its framework that has what it uses
    before: str = ""  # the first that has it no more

    @property
    def module(self) -> str:
        """The importable name of its file."""
        return "lstmprof.implementations." + self.file

    @property
    def family(self) -> str:
        """The folder of its file: what is listed together."""
        return self.file.partition(".")[0]

    def form_on(self, device: str) -> str:
        """How it computes a layer on ``cpu`` or ``cuda``."""
        return self.form_on_gpu if self.form_on_gpu and device == "cuda" else self.form

    def lacks(self, version: Optional[str]) -> Optional[str]:
        """Why it does not run with this version of its framework; None where it may.

        None too where the version is not known.
        """
        numbers = version_numbers(version or "")
        if not numbers or (not self.since and not self.before):
            return None
        if numbers < version_numbers(self.since):
            needs = "{} or newer".format(self.since)
        elif self.before and numbers >= version_numbers(self.before):
            needs = "older than {}".format(self.before)
        else:
            return None
        return "{} needs {} {}, not {}".format(self.name, self.framework, needs, version)

    def refusals(self) -> Dict[str, str]:
        """What it cannot do -> the reason, its framework's included."""
        unknown = {need: why for need, why in UNUSUAL.items() if need not in self.knows}
        return dict(unknown, **FRAMEWORKS[self.framework], **self.refuses)


def version_numbers(version: str) -> Tuple[int, ...]:
    """``1.4.0`` as (1, 4, 0), ``2.13.0+cpu`` as (2, 13, 0): to be compared."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))
