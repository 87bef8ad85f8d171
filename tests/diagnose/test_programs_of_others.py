"""Programs of TensorFlow, JAX and Keras with a known mistake, profiled here: it is named first.

``slow_programs`` holds them; the correct ones get none of this advice.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from diagnose.torch_profiles import reads_like_its_example

import lstmprof as lp
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.findings import Finding
from lstmprof.diagnose.remedies import Advice

pytestmark = pytest.mark.measured
PROGRAMS = Path(__file__).with_name("slow_programs")
#: Rows about mistakes of these programs.
MISTAKES = {
    "trace once",
    "jit the whole",
    "one tf.function",
    "pad at the end",
    "a layer op for Keras",
    "Keras on cuDNN",
    "Keras off its standard loop",
    "cuDNN for JAX",
    "gates together",
}


def profiled(folder: Path, program: str, *words: str) -> Path:
    """The folder into which a program wrote a profile of each of its steps."""
    command = [sys.executable, str(PROGRAMS / program), *words, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tensorflow")
    return profiled(tmp_path_factory.mktemp("tensorflow"), "steps_of_tensorflow.py")


@pytest.fixture(scope="module")
def jax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jax")
    return profiled(tmp_path_factory.mktemp("jax"), "steps_of_jax.py")


@pytest.fixture(scope="module")
def keras_on_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("keras")
    return profiled(tmp_path_factory.mktemp("torch"), "steps_of_keras.py", "torch")


@pytest.fixture(scope="module")
def keras_on_jax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("keras")
    return profiled(tmp_path_factory.mktemp("keras-jax"), "steps_of_keras.py", "jax")


def diagnosis(folder: Path, name: str) -> Diagnosis:
    (file,) = [*folder.glob(f"{name}/**/*.xplane.pb"), *folder.glob(f"{name}/*.pt.trace.json")]
    return lp.diagnose(lp.ingest(file, folder / "runs" / name, force=True)[0])


def first(found: Diagnosis) -> Finding:
    return found.shown[0].finding


def mistakes(found: Diagnosis) -> dict[str, Advice]:
    """Advice on mistakes, by name."""
    return {a.name: a for a in found.remedies if a.name in MISTAKES}


def first_advice(found: Diagnosis) -> Advice:
    """The first advice for the first finding."""
    return found.shown[0].remedies[0]


@pytest.mark.parametrize("program", ["function", "keras"])
def test_a_step_that_is_one_function_has_no_mistake(program: str, tensorflow: Path) -> None:
    assert mistakes(diagnosis(tensorflow, program)) == {}


@pytest.mark.parametrize("program", ["eager", "keras-eager"])
def test_operators_outside_of_a_function_are_named_first(program: str, tensorflow: Path) -> None:
    found = diagnosis(tensorflow, program)
    assert first(found).kind in ("dispatch", "Python")
    assert first_advice(found).name == "one tf.function"
    assert set(mistakes(found)) == {"one tf.function"}


def test_a_python_number_that_changes_traces_the_function_in_every_step(tensorflow: Path) -> None:
    found = diagnosis(tensorflow, "number")
    assert first(found).kind == "compile"
    advice = first_advice(found)
    assert advice.name == "trace once"
    assert "for train" in advice.seen
    assert "in 2 steps" in advice.seen
    assert "Python numbers" in advice.fix


def test_a_function_that_is_made_in_every_step_is_told_from_one_traced_again(
    tensorflow: Path,
) -> None:
    found = diagnosis(tensorflow, "anew")
    assert first(found).kind == "compile"
    assert "create the tf.function train once" in first_advice(found).fix


def test_a_layer_of_keras_that_masks_is_named(tensorflow: Path) -> None:
    found = diagnosis(tensorflow, "keras-mask")
    assert first_advice(found).name == "pad at the end"
    assert set(mistakes(found)) == {"pad at the end"}


@pytest.mark.parametrize("program", ["jit", "unmarked-jit"])
def test_a_step_that_is_one_program_has_no_mistake(program: str, jax: Path) -> None:
    assert mistakes(diagnosis(jax, program)) == {}


def test_a_loop_with_a_matmul_for_each_gate_is_named(jax: Path) -> None:
    found = diagnosis(jax, "gates-apart")
    assert set(mistakes(found)) == {"gates together"}
    assert reads_like_its_example(mistakes(found)["gates together"])


@pytest.mark.parametrize("program", ["no-jit", "unmarked-no-jit"])
def test_jax_without_jit_is_named_first(program: str, jax: Path) -> None:
    found = diagnosis(jax, program)
    assert first(found).kind in ("dispatch", "Python")
    assert first_advice(found).name == "jit the whole"
    assert set(mistakes(found)) == {"jit the whole"}


@pytest.mark.parametrize("program", ["no-jit-scan", "unmarked-no-jit-scan"])
def test_a_scan_outside_of_jit_is_compiled_in_every_step(program: str, jax: Path) -> None:
    found = diagnosis(jax, program)
    assert first(found).kind == "compile"
    assert first_advice(found).name == "jit the whole"
    assert first_advice(found).cause.startswith("JAX compiles scan ")
    assert "trace once" not in mistakes(found)


def test_a_jit_that_is_made_in_every_step_is_traced_and_compiled_in_each(jax: Path) -> None:
    found = diagnosis(jax, "anew")
    assert first(found).kind == "compile"
    assert set(mistakes(found)) == {"trace once"}
    assert "for <lambda>" in first_advice(found).seen
    assert "in 2 steps" in first_advice(found).seen
    assert "jax.jit before the loop" in first_advice(found).fix


def test_a_profile_of_the_step_that_compiles_is_told_to_begin_later(jax: Path) -> None:
    found = diagnosis(jax, "first")
    assert "before the profiled steps" in mistakes(found)["trace once"].fix


def test_keras_on_torch_has_no_layer_in_one_op_on_a_cpu(keras_on_torch: Path) -> None:
    found = diagnosis(keras_on_torch, "plain")
    assert "torch.nn.LSTM" in mistakes(found)["a layer op for Keras"].fix
    assert "unbind before the loop" not in {a.name for a in found.remedies}


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_mask_of_keras_is_named_on_every_backend(
    backend: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(f"keras_on_{backend}")
    assert "cuDNN" in mistakes(diagnosis(folder, "masked"))["pad at the end"].seen
    assert "pad at the end" not in mistakes(diagnosis(folder, "plain"))


def test_keras_on_jax_that_is_one_program_has_no_mistake(keras_on_jax: Path) -> None:
    assert mistakes(diagnosis(keras_on_jax, "plain")) == {}
