"""Write ``tests/profiles``: simulated programs as profiles of each kind, with the truth beside.

From ``tests``: ``python -m simulator.write_profiles``. The same bytes on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.gpu_simulator import simulated
from simulator.lstm_programs import MACHINE, MAIN, Body, Style, tensorflow_program, torch_program
from simulator.recording import Recording
from simulator.writers import kineto, nsys, xplane

FOLDER = Path(__file__).resolve().parents[1] / "profiles"
_PROFILER_STEP = "ProfilerStep#{0}"


@dataclass(frozen=True)
class Profile:
    """A file in ``FOLDER``: which program it holds, how it is written."""

    file: str
    program: Body
    tick_ns: int
    write: Callable[[Recording], bytes]
    first_step: int = 0
    call_names: dict[str, str] | None = None

    @property
    def truth_file(self) -> str:
        """The file with the truth about it."""
        return f"{self.file}.truth.json"

    @property
    def recording(self) -> Recording:
        """What its profiler recorded."""
        simulation = simulated([(MAIN, self.program)], MACHINE)
        return Recording(simulation, self.tick_ns, MAIN, self.first_step)


PROFILES = (
    Profile(
        "kineto-2021.pt.trace.json",
        torch_program(Style(_PROFILER_STEP)),
        1000,
        kineto.of_2021,
        first_step=1,
    ),
    Profile(
        "kineto-today.pt.trace.json",
        torch_program(Style(_PROFILER_STEP, ranges=True, frames=True, graphs=True)),
        983,
        kineto.of_today,
        first_step=1,
    ),
    Profile(
        "nsys-2025.sqlite",
        torch_program(Style("step", ranges=True, graphs=True, overhead="Buffer Flush")),
        983,
        nsys.of_2025,
    ),
    Profile(
        "tensorflow.xplane.pb",
        tensorflow_program(),
        983,
        xplane.of_tensorflow,
        call_names=xplane.CALLS,
    ),
)


def files() -> dict[str, bytes]:
    """By name, what stands in ``FOLDER``."""
    written: dict[str, bytes] = {}
    for profile in PROFILES:
        recording = profile.recording
        written[profile.file] = profile.write(recording)
        written[profile.truth_file] = _lines(recording.truth(profile.call_names))
    return written


def _lines(truth: dict[str, list[dict[str, Any]]]) -> bytes:
    """JSON with a row a line."""
    parts = []
    for name, rows in truth.items():
        lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
        parts.append(f' "{name}": [\n{lines}\n ]')
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, content in files().items():
        (FOLDER / file).write_bytes(content)
        print(f"wrote {FOLDER / file} ({len(content)} bytes)")
