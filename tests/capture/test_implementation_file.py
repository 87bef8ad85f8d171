"""A file of the user's as an implementation: what its text tells, and what its worker finds."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from in_process import lstmprof

from lstmprof import implementations
from lstmprof.base.errors import CaptureError, UsageError
from lstmprof.capture.harness import plan
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.harness.supervisor import CaptureResult, capture
from lstmprof.capture.implementation_file import (
    TEMPLATES,
    implementation_file,
    is_file,
    template_text,
)
from lstmprof.capture.request import CaptureRequest, run_name
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 6, "ce")
CTC = Workload("tiny-ctc", 2, 4, True, 2, 8, 3, 4, "ctc", labels=2, shortest=5)

#: A torch file whose parts a test replaces
NETWORK = """
import torch

class Network(torch.nn.Module):
    def __init__(self, w):
        super().__init__()
        self.lstm = torch.nn.LSTM(w.features, w.hidden, batch_first=True)
        self.head = torch.nn.Linear(w.hidden, w.classes, bias=False)

    def forward(self, x):
        outputs, _ = self.lstm(x)
        return self.head(outputs[:, -1])

def build(workload):
    return Network(workload)
"""


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def asked(text: str, workload: Workload = CE, **fields: Any) -> CaptureRequest:
    file = implementation_file(text)
    least: dict[str, Any] = {"device": "cpu", "iterations": 2, "warmup": 1, "profile_steps": 1}
    return CaptureRequest(file.name, workload, **{**least, "peaks": False, **fields}, file=file)


def captured(folder: Path, text: str, workload: Workload = CE) -> tuple[CaptureResult, list[str]]:
    said: list[str] = []
    result = capture(asked(text, workload), folder / "scratch", said.append)
    return result, said


def test_a_file_is_told_from_a_name_and_its_framework_from_its_text(tmp_path: Path) -> None:
    assert [is_file(text) for text in ("mine.py", "a/mine.py:build", "torch-nn-lstm", "t*")] == [
        *(True, True),
        *(False, False),
    ]
    texts = {
        "import torch": "torch",
        "import keras": "tensorflow",
        "import keras\nimport torch": "torch",
        'import keras\nFRAMEWORK = "jax"': "jax",
        "from flax import linen": "jax",
    }
    for text, framework in texts.items():
        path = written(tmp_path, f"{text}\ndef build(w): pass")
        assert implementation_file(path).framework == framework


def test_runs_are_named_by_file_and_function_and_never_as_what_lstmprof_brings(
    tmp_path: Path,
) -> None:
    text = "import torch\ndef build(w): pass\ndef small(w): pass"
    mine, other = written(tmp_path, text), written(tmp_path, text, "torch-nn-lstm.py")
    assert run_name(asked(mine)) == "mine--tiny-ce--fp32--cpu"
    assert implementation_file(f"{mine}:small").name == "mine-small"
    assert implementation_file(other).name not in implementations.ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"mine.py: No such file.*; `lstmprof list --template torch` prints a template"),
        ("def build(w): (", r"mine.py:1: is not valid Python: .* never closed"),
        (
            "import torch\ndef model(w): pass",
            r"has no function build\(workload\); its functions are model; add",
        ),
        ("def build(w): pass", r"imports none of torch, .*; add FRAMEWORK = "),
        ("FRAMEWORK = 'tf'\ndef build(w): pass", r"unknown FRAMEWORK of mine.py 'tf'"),
    ],
)
def test_a_file_that_cannot_be_meant_is_one_line(
    text: str | None, message: str, tmp_path: Path
) -> None:
    if text is not None:
        written(tmp_path, text)
    with pytest.raises(UsageError, match=message):
        implementation_file(str(tmp_path / "mine.py"))


def test_a_request_with_a_file_survives_json(tmp_path: Path) -> None:
    request = asked(written(tmp_path, NETWORK))
    assert CaptureRequest.from_json(request.to_json()) == request


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_template_runs_as_it_is_and_agrees_with_the_reference(
    name: str, tmp_path: Path
) -> None:
    path = written(tmp_path, template_text(name))
    file = implementation_file(path)
    pytest.importorskip("keras" if name == "keras" else file.framework)
    workload = CTC if name in ("torch", "keras") else CE
    facts = captured(tmp_path, path, workload)[0].metadata
    assert facts["agrees_with_reference"] is True
    assert (facts["implementation"], facts["framework"]) == ("mine", file.framework)
    assert facts["implementation_file"] == "mine.py:build"
    assert re.fullmatch("[0-9a-f]{64}", facts["implementation_sha256"])


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_a_file_is_compared_with_the_reference_in_strict_float32(
    framework: str, tmp_path: Path
) -> None:
    """With TF32, which TensorFlow allows from the start, the comparison would fail on a GPU."""
    library = pytest.importorskip(framework)
    from lstmprof.capture.worker import users_file
    from lstmprof.capture.worker.checked_file import computes_workload

    if framework == "torch":
        library.backends.cuda.matmul.allow_tf32 = True
    else:
        library.config.experimental.enable_tensor_float_32_execution(True)
    request = asked(written(tmp_path, template_text(framework)))
    users, seen = users_file.implementation_of(request), []

    class Network(users.module.Network):  # type: ignore[misc, name-defined]
        def __call__(self, *inputs: Any) -> Any:
            if framework == "torch":
                seen.append(library.backends.cuda.matmul.allow_tf32)
            else:
                seen.append(library.config.experimental.tensor_float_32_execution_enabled())
            return super().__call__(*inputs)

    users.module.Network = Network
    assert computes_workload(users, request.workload, "cpu", lambda line: None)
    assert seen == [False]


def test_keras_on_pytorch_numbers_its_parameters_anew_and_is_held_all_the_same(
    tmp_path: Path,
) -> None:
    pytest.importorskip("keras")
    pytest.importorskip("torch")
    text = template_text("keras").replace('FRAMEWORK = "tensorflow"', 'FRAMEWORK = "torch"')
    facts = captured(tmp_path, written(tmp_path, text))[0].metadata
    assert (facts["framework"], facts["agrees_with_reference"]) == ("torch", True)


def test_a_file_without_load_claims_nothing_and_its_run_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    request, said = asked(written(tmp_path, NETWORK)), list[str]()
    run = capture_run(request, tmp_path / "traces", rounds=1, progress=said.append)
    assert run.info.agrees_with_reference is False
    assert run.info.implementation == "mine"
    assert any("mine.py has no load(), so its results were not checked" in line for line in said)
    (there,) = plan.plan({"mine": request.file}, [CE], ["fp32"], request, tmp_path / "traces")
    assert there.skip == plan.THERE
    again = asked(written(tmp_path, NETWORK + "\n"))
    (changed,) = plan.plan({"mine": again.file}, [CE], ["fp32"], again, tmp_path / "traces")
    assert changed.is_there
    assert "from an older mine.py" in str(changed.skip)


CLAIM = """
def load(network, weights):
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            shared = name.replace("lstm.", "").replace("bias_ih", "bias")
            shared = shared.replace("head.weight", "head")
            parameter.copy_(torch.from_numpy(weights.get(shared, weights["bias_l0"] * 0)))
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            NETWORK.replace("outputs[:, -1]", "outputs[:, 0]") + CLAIM,
            r"does not compute the workload's lstm: the \w[\w ]* differs from the float64 "
            r"reference by .*; correct the network or load\(\); delete load\(\)",
        ),
        (
            NETWORK.replace("(w.hidden, w.classes", "(w.hidden + 1, w.classes"),
            r"^mine.py:12 in forward: RuntimeError: .*mat1 and mat2 .*; correct the file",
        ),
        (
            NETWORK.replace("w.classes, bias", "w.classes + 1, bias"),
            r"returned \(2, 7\), not outputs \(batch, classes\) = \(2, 6\); correct the file",
        ),
        (
            NETWORK.replace(", batch_first=True", "").replace("[:, -1]", "[-1]"),
            r"returned \(5, 6\), .*; set TIME_MAJOR = True in the file",
        ),
        (NETWORK.replace("return Network(workload)", "pass"), r"build\(\) returned a NoneType, n"),
        (NETWORK + "import nowhere_to_be_found", r"^mine.py:16: nowhere_to_be_found is not insta"),
        (NETWORK + "raise SystemExit(2)", r"^mine.py:16: importing it ends the process; move the"),
    ],
    ids=["no LSTM", "forward", "classes", "time first", "nothing built", "missing", "script"],
)
def test_what_is_wrong_in_the_file_is_one_line_with_its_place(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert re.search(message, failure(asked(written(tmp_path, text))))


def failure(request: CaptureRequest) -> str:
    """What a worker says of the first step, in this process."""
    from lstmprof.capture.worker import users_file
    from lstmprof.capture.worker.checked_file import computes_workload
    from lstmprof.capture.worker.loops.torch import Trainer
    from lstmprof.capture.worker.profiling import no_ranges

    assert request.file is not None
    try:
        computes_workload(
            users_file.implementation_of(request), request.workload, "cpu", lambda line: None
        )
        Trainer(request, "cpu").step(no_ranges)
    except CaptureError as error:
        return str(error)
    except Exception as error:
        return "; ".join(users_file.explained(error, request.file))
    return "nothing"


def test_a_plan_has_rows_first_then_files_and_no_two_of_one_name(tmp_path: Path) -> None:
    path = written(tmp_path, NETWORK)
    (tmp_path / "other").mkdir()
    other = written(tmp_path / "other", NETWORK)
    assert list(plan.chosen([path, "torch-nn-lstm"])) == ["torch-nn-lstm", "mine"]
    with pytest.raises(UsageError, match="two files are named mine"):
        plan.chosen([path, other])


def test_the_example_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [*sys.path])
    page = Path(__file__).resolve().parents[2] / "docs" / "own_code.md"
    (code,) = re.findall(r"```python\n(# mymodel.py\n.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert failure(asked(written(tmp_path, code))) == "nothing"


@pytest.mark.measured
def test_a_file_that_sleeps_waits_at_its_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    forward = "    def forward(self, x):\n"
    text = "import time\n" + NETWORK.replace(forward, forward + "        time.sleep(0.02)\n")
    out, file = tmp_path / "traces", written(tmp_path, text)
    network = ("--workload", "1x320-ce-short", "--time-steps", 5, "--hidden", 16)
    plan = ("--device", "cpu", "--rounds", 1, "--iterations", 10, "--no-peaks")
    ended = lstmprof("capture", "--impl", file, *network, *plan, "--out", out)
    assert ended.returncode == 0, ended.stderr
    (run,) = (path.parent for path in out.glob("*/run.json"))
    breakdown, diagnoses = (
        json.loads(lstmprof(command, run, "--format", "json").stdout)
        for command in ("breakdown", "diagnose")
    )
    verdict, first = diagnoses[0]["verdict"], diagnoses[0]["findings"][0]
    line = text.splitlines().index("        time.sleep(0.02)") + 1
    assert (verdict["kind"], verdict["cause"]) == ("waiting", f"mine.py:{line} sleeps (time.sleep)")
    assert (first["kind"], first["slow_ns"]) == ("waiting", pytest.approx(20_000_000, rel=0.2))
    parts = {row["part"]: row["ns"] for row in breakdown["account"]}
    assert parts["waiting"] == first["slow_ns"]
    assert "waiting" not in {row["part"] for row in breakdown["ledger"]}  # of single steps
    cpu_share = breakdown["timings"][0]["cpu_share"]
    assert cpu_share is None or cpu_share > 0.4  # a thread that sleeps waits for no CPU
