"""A few damaged inputs through all commands; many: ``python -m attack.whole``."""

from __future__ import annotations

from pathlib import Path

import pytest
from attack import damages, whole
from attack.targets import TARGETS


@pytest.mark.parametrize("name", ["kineto", "xplane", "run directory"])
def test_an_accepted_input_passes_through_every_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "HANG_S", 0)  # an alarm comes by the clock of a busy machine
    target = TARGETS[name]
    ends = list(whole.problems(target, 0, target.seeds()[0], tmp_path))
    assert ends == [""] * len(whole.COMMANDS)


def test_a_defect_is_a_problem() -> None:
    assert damages.problem_of(1, "error: a bug in lstmprof", "")
