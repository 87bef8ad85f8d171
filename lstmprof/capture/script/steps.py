"""Decide which calls end the steps of a script, such as calls of ``optimizer.step``.

If a script has several optimizers (a GAN), calls of the least frequent optimizer end the steps.
lstmprof therefore counts calls of optimizers or compiled functions before the measurement.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Dict, List, Optional, Union

#: Number of calls of the first optimizer until all optimizers are known. A GAN may call one
#: optimizer 5 times as often as the other (WGAN, arXiv:1701.07875).
OBSERVED = 6
#: Number of calls of the first compiled function or Keras model until all are known; more would
#: delay every run.
OBSERVED_ELSEWHERE = 2
#: Kind of hook -> reliability; the most reliable hook decides where a step ends.
SOURCES = {
    **dict.fromkeys(("torch gradient", "tensorflow gradient", "jax gradient"), 0),
    **dict.fromkeys(("torch", "tensorflow", "jax"), 1),
    "keras": 2,
    "function": 3,
}

_CHANGE = "if this is wrong, name the function that runs one step: --step-function NAME"

#: Id of an optimizer or model, or name of a compiled function.
Key = Union[int, str]


class Steps:
    """Turns the calls that hooks report into steps of a session."""

    def __init__(
        self,
        begin: Callable[[str], Any],
        note: Callable[[str], None],
        measured: Callable[[], None] = lambda: None,
        failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self.functions = 0  # functions that are marked as the step
        self.optimizers = 0  # optimizers that the script has created
        self.session: Any = None
        self.source: Optional[str] = None
        self._begin, self._note, self._measured = begin, note, measured
        self._failed = failed
        self._pid, self._thread = os.getpid(), None  # type: int, Optional[int]
        self.exit_code: Any = None  # how the script called ``sys.exit``
        self._calls: List[Key] = []
        self._who: Dict[Key, Any] = {}
        self._last: Optional[Key] = None
        self.over = False  # no further step is measured

    @property
    def profiling(self) -> bool:
        """Return whether a profiled step of this thread is running."""
        return self.session is not None and self.session.profiling and self.here

    @property
    def observed(self) -> int:
        """Return how many steps were observed to find out what ends a step."""
        return 0 if self._last is None else self._calls.count(self._last)

    @property
    def here(self) -> bool:
        """Return whether this is the script's process and the thread of its steps."""
        return os.getpid() == self._pid and self._thread in (None, threading.get_ident())

    def safely(self, do: Callable[..., Any], *args: Any) -> Any:
        """Call a function of lstmprof; stop measuring if the function fails."""
        try:
            return do(*args)
        except Exception as error:
            self.over = True
            self._failed(error)
            return None

    def restart(self) -> None:
        """Measure the steps of this forked process from now on."""
        self._pid, self._thread = os.getpid(), None

    def begins(self, source: str) -> None:
        self.safely(self._begins, source)

    def _begins(self, source: str) -> None:
        if self._take(source):
            if self.session is None:
                self._make(source)
            if self.session is not None:
                self.session.step_begin()

    def ends(self, source: str, who: Any = None, outcome: Any = None, follows: bool = True) -> None:
        """End the step if ``who``, such as an optimizer, is called last in a step."""
        self.safely(self._ends, source, who, outcome, follows)

    def _ends(self, source: str, who: Any, outcome: Any, follows: bool) -> None:
        if not self._take(source) or (who is not None and not self._is_last(who)):
            return
        if self.session is None:
            self._make(source)
        if self.session is None:
            return
        self.session.step_end(outcome)
        if self.session.measured:
            self.over = True
            self._measured()
        elif follows:
            self.session.step_begin()

    def counts(self, source: str) -> bool:
        """Return whether this kind of hook, such as ``"keras"``, decides on steps."""
        if self.over or not self.here:
            return False
        if self.source is None or source == self.source:
            return True
        # let a more reliable hook replace the present hook
        return SOURCES[source] > SOURCES[self.source]

    def _take(self, source: str) -> bool:
        if not self.counts(source):
            return False
        if source != self.source:
            self.source, self._thread = source, threading.get_ident()
            self._calls, self._who, self._last = [], {}, None
        return True

    def _make(self, source: str) -> None:
        self.session = self._begin(source)
        self.over = self.session is None

    def _is_last(self, who: Any) -> bool:
        """Return whether a call of ``who`` ends a step."""
        key = who if isinstance(who, str) else id(who)
        if key not in self._who:
            self._who[key] = who
            if self._last is not None:
                self._note(
                    "calls of {} do not end a step, because calls of {} do; {}".format(
                        _name(who), _name(self._who[self._last]), _CHANGE
                    )
                )
        if self._last is None:
            self._calls.append(key)
            if self._calls.count(self._calls[0]) < self._most_observed():
                return False
            self._last = last_of(self._calls)
            self._note_end_of_step()
        return key == self._last

    def _most_observed(self) -> int:
        if self.source == "torch":
            return 1 if self.optimizers == 1 else OBSERVED
        return OBSERVED_ELSEWHERE

    def _note_end_of_step(self) -> None:
        if len(self._who) < 2:
            return
        others = [_name(who) for key, who in self._who.items() if key != self._last]
        self._note(
            "each call of {} ends a step ({}); calls of {} do not; {}".format(
                _name(self._who[self._last or 0]),
                "it is called last"
                if self._last == list(self._who)[-1]
                else "it is called least often",
                " and ".join(others),
                _CHANGE,
            )
        )


def last_of(calls: List[Key]) -> Key:
    """Return the rarest key; among equally rare keys, the last to appear."""
    # treat counts that differ by one as equal, because the last step may be incomplete
    counts = {key: calls.count(key) for key in calls}
    fewest = min(counts.values())
    return [key for key in dict.fromkeys(calls) if counts[key] <= fewest + 1][-1]


def _name(who: Any) -> str:
    if isinstance(who, str):
        return who
    name = getattr(who, "name", None)  # Keras models and optimizers have names
    return name if isinstance(name, str) else type(who).__name__
