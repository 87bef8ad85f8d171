"""The cases of ``planted.py`` (what is planted where), grouped into sweeps of captures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lstmprof.diagnose.findings import causes
from lstmprof.workloads import Workload

WORKLOAD = Workload("planted", 1, 64, False, 32, 20, 64, 10, "ce")
#: A network with so many time steps that gradients become denormal numbers in the backward pass.
LONG = Workload("long", 1, 32, False, 16, 300, 32, 10, "ce")
#: Size of a planted cause, as a share of the clean step; sizes of the two causes of a pair.
SHARE, SHARES_OF_PAIR = 0.5, (0.6, 0.25)
#: Maximum number of cases in a sweep. With more, the rounds of a case would be too far apart.
MOST_CASES = 5

#: Planted cause → the kind of cause that the diagnosis must name.
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
#: Setting → words, one of which must be in the sentence; the kind of the cause does not matter.
WORDS = {
    "denormals": ("denormal",),
    "anomaly mode": ("anomaly mode", "anomalies"),
    "oneDNN off": ("oneDNN off", "oneDNN is off", ": oneDNN)"),
    "two threads on one CPU": ("2 threads", "2 busy threads", "intra-op threads 2"),
    "page faults": ("page faults", "MALLOC_"),
}
#: Environment that makes glibc return each block above 4096 bytes to the system at once, and
#: request it again (mallopt(3)), which causes page faults.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "4096"}


@dataclass(frozen=True)
class Case:
    """What to plant in one run: ``causes`` or a ``setting``.

    ``causes`` are pairs (name, share of the clean step), the largest first. A setting is made by
    ``environment`` variables, by ``asked`` (fields of the capture request), or by code in
    ``planting``. ``across`` are the values of ``diagnose --across`` that the comparison needs.
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
        """Return what is planted as text, such as ``casts 60% + item() 25%``."""
        return self.setting or " + ".join(f"{name} {share:.0%}" for name, share in self.causes)

    @property
    def label(self) -> str:
        """Return the label of the capture, such as ``casts-item``."""
        words = self.setting or "-".join(name for name, _ in self.causes)
        return words.replace(" ", "-").replace("()", "")

    @property
    def name(self) -> str:
        """Return the name that the patterns of ``--only`` match: implementation/label."""
        return f"{self.implementation}/{self.label}"

    @property
    def plan(self) -> dict[str, Any]:
        """Return the content of the file that ``planting/sitecustomize.py`` reads."""
        plan = {"causes": self.causes, "setting": self.setting}
        return {**plan, "environment": dict(self.environment)}

    def is_named(self, cause: str | None, sentence: str) -> bool:
        """Return whether a diagnosis with this cause and sentence names what was planted."""
        if self.setting:
            return any(word in sentence for word in WORDS[self.setting])
        return cause == KINDS[self.causes[0][0]]


@dataclass(frozen=True)
class Sweep:
    """Cases of one implementation and network that are captured together, with a clean run.

    The rounds of all these runs alternate.
    """

    name: str
    cases: tuple[Case, ...]

    @property
    def implementation(self) -> str:
        """Return the implementation of all runs."""
        return self.cases[0].implementation

    @property
    def workload(self) -> Workload:
        """Return the network and data of all runs."""
        return self.cases[0].workload


def _single(implementation: str, *names: str) -> Iterator[Case]:
    return (Case(implementation, ((name, SHARE),)) for name in names)


def _pairs(implementation: str, *pairs: tuple[str, str]) -> Iterator[Case]:
    return (Case(implementation, tuple(zip(p, SHARES_OF_PAIR, strict=True))) for p in pairs)


def _settings() -> Iterator[Case]:
    """Yield the cases of settings that make the same calls slower."""
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
    """Group ``cases`` into sweeps of at most ``MOST_CASES``, by implementation and network."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.implementation, case.workload.name), []).append(case)
    for (implementation, workload), group in groups.items():
        for number, first in enumerate(range(0, len(group), MOST_CASES)):
            mine = tuple(group[first : first + MOST_CASES])
            yield Sweep(f"{implementation}-{workload}-{number}", mine)
