"""What is planted where: the cases of ``planted.py``, and the sweeps in which they are captured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lstmprof.diagnose import causes
from lstmprof.workloads import Workload

WORKLOAD = Workload("planted", 1, 64, False, 32, 20, 64, 10, "ce")
#: So long that gradients fade into denormal numbers on their way back to the first time step.
LONG = Workload("long", 1, 32, False, 16, 300, 32, 10, "ce")
#: Of what each cause takes, of the clean step; of a pair the first and the second.
SHARE, SHARES_OF_PAIR = 0.5, (0.6, 0.25)
#: Rounds of a sweep lie the farther apart the more cases it has.
MOST_CASES = 5

#: Cause → the kind that a diagnosis must give.
KINDS = {
    "casts": causes.CAST,
    "tiny ops": causes.DISPATCH,
    "busy wait": causes.PYTHON,
    "sleep": causes.PYTHON,
    "thread wait": causes.PYTHON,
    "item()": causes.SYNC,
    "layout copies": causes.COPY,
    "doubled GEMM": causes.GEMM,
    "pointwise": causes.MEMORY,
    "input work": causes.INPUT,
    "input wait": causes.INPUT,
}
#: Setting → words of which one must stand in the sentence, whatever the kind of the cause.
WORDS = {
    "denormals": ("denormal",),
    "anomaly mode": ("anomaly mode", "anomalies"),
    "oneDNN off": ("oneDNN off", "oneDNN is off", ": oneDNN)"),
    "two threads on one CPU": ("2 threads", "2 busy threads", "intra-op threads 2"),
    "page faults": ("page faults", "MALLOC_"),
}
#: glibc's allocator gives each block beyond so many bytes back at once, and asks again: mallopt(3).
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "4096"}


@dataclass(frozen=True)
class Case:
    """Causes with their shares of the clean step, the largest first; or a setting.

    ``environment`` and ``asked`` (of the capture) are what makes the setting where no line does;
    ``across`` is what a user must allow to differ for a diagnosis.
    """

    implementation: str
    causes: tuple[tuple[str, float], ...] = ()
    setting: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    across: tuple[str, ...] = ()
    workload: Workload = WORKLOAD

    @property
    def title(self) -> str:
        """``casts 60 % + item() 25 %``."""
        return self.setting or " + ".join(f"{name} {share:.0%}" for name, share in self.causes)

    @property
    def label(self) -> str:
        """What its capture is called."""
        words = self.setting or "-".join(name for name, _ in self.causes)
        return words.replace(" ", "-").replace("()", "")

    @property
    def name(self) -> str:
        """What ``--only`` is held against."""
        return f"{self.implementation}/{self.label}"

    @property
    def plan(self) -> dict[str, Any]:
        """What ``planting/sitecustomize.py`` reads."""
        plan = {"causes": self.causes, "setting": self.setting}
        return {**plan, "environment": dict(self.environment)}

    def is_named(self, cause: str | None, sentence: str) -> bool:
        """Whether a diagnosis with this cause and first sentence names what was planted."""
        if self.setting:
            return any(word in sentence for word in WORDS[self.setting])
        return cause == KINDS[self.causes[0][0]]


@dataclass(frozen=True)
class Sweep:
    """One capture of a clean run and of each of the cases, their rounds in turn."""

    name: str
    cases: tuple[Case, ...]

    @property
    def implementation(self) -> str:
        """Of all its runs."""
        return self.cases[0].implementation

    @property
    def workload(self) -> Workload:
        """Of all its runs."""
        return self.cases[0].workload


def _single(implementation: str, *names: str) -> Iterator[Case]:
    return (Case(implementation, ((name, SHARE),)) for name in names)


def _pairs(implementation: str, *pairs: tuple[str, str]) -> Iterator[Case]:
    return (Case(implementation, tuple(zip(p, SHARES_OF_PAIR, strict=True))) for p in pairs)


def _settings() -> Iterator[Case]:
    """What makes the same calls slower."""
    yield Case("torch-lstmcell-fused", setting="anomaly mode", asked={"anomaly": True})
    yield Case("torch-nn-lstm", setting="two threads on one CPU", across=("threads",))
    yield Case("torch-nn-lstm", setting="oneDNN off", asked={"onednn": False})
    yield Case("torch-lstmcell-fused", setting="page faults", environment=ALLOCATOR)
    for name in ("torch-nn-lstm", "torch-lstmcell-fused"):
        yield Case(name, setting="denormals", asked={"keep_denormals": True}, workload=LONG)


CASES = (
    *_single("torch-lstmcell-basic", *KINDS),
    *_pairs("torch-lstmcell-basic", ("casts", "busy wait"), ("layout copies", "casts")),
    *_single("torch-nn-lstm", "casts", "tiny ops", "layout copies", "sleep", "item()"),
    *_single("torch-lstmcell-fused", "doubled GEMM", "pointwise"),
    *_settings(),
    *_single("tf-lstmcell", "casts", "layout copies", "doubled GEMM", "busy wait", "input work"),
    *_single("keras-lstm", "pointwise", "tiny ops", "thread wait"),
    *_single("jax-scan", "casts", "doubled GEMM", "sleep", "tiny ops", "input wait"),
)


def sweeps(cases: Iterable[Case]) -> Iterator[Sweep]:
    """The cases in sweeps of at most ``MOST_CASES``, of one implementation and network each."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.implementation, case.workload.name), []).append(case)
    for (implementation, workload), group in groups.items():
        for number, first in enumerate(range(0, len(group), MOST_CASES)):
            mine = tuple(group[first : first + MOST_CASES])
            yield Sweep(f"{implementation}-{workload}-{number}", mine)
