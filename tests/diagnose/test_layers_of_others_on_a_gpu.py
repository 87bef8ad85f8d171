"""Why a layer of Keras, Flax or TensorFlow is not on cuDNN, in profiles drawn as of a GPU.

Three steps, each a loop of eight time steps; every op launches one kernel that is over before the
next one comes. What differs between the profiles are the names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from diagnose.torch_profiles import reads_like_its_example
from simulator.gpu_programs import Gap, Instruction, Launch, Machine, Within, Work
from simulator.gpu_simulator import simulated
from simulator.recording import Recording
from simulator.writers import kineto, xplane

import lstmprof as lp
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.remedies import Advice
from lstmprof.formats.xplane import schema

MAIN, STREAM, TICK_NS = 25738, (0, 7), 1000
STEPS, TIME_STEPS = 3, 8
PROFILES = Path(__file__).resolve().parents[1] / "profiles"

KERAS = "seq/lstm/while/body/_1/seq/lstm/while"
GATES = ("MatMul:MatMul", "MatMul_1:MatMul", "BiasAdd:BiasAdd", "Sigmoid:Sigmoid", "Tanh:Tanh")
CELL = [f"{KERAS}/lstm_cell/{gate}" for gate in GATES]
#: Keras 2's function standard_lstm as Grappler inlines it.
STANDARD = [
    *(f"while_15/body/_1/while/{gate}" for gate in GATES),
    "seq/lstm/Read/ReadVariableOp:ReadVariableOp",
]
FLAX = "jit(step)/jvp(RNN_0)/while/body/closed_call/OptimizedLSTMCell_0"
JAX = ("dot_general", "dot_general", "add", "logistic", "tanh", "mul")
TORCH = ("aten::mm", "aten::mm", "aten::add", "aten::sigmoid", "aten::tanh", "aten::mul")


def _op(name: str, frames: Sequence[str] = ()) -> Instruction:
    product = "MatMul" in name or "dot_general" in name or name == "aten::mm"
    kernel = "ampere_sgemm_32x32_nn" if product else f"{name.rpartition('/')[2]}_kernel"
    launch = Launch(STREAM, Work("kernel", kernel, "gemm" if product else "pointwise", 3), 5)
    op: Instruction = Within("op", name, 4, (launch,), 2, "gemm" if product else "pointwise")
    for frame in reversed(frames):
        op = Within("python", frame, 1, (op,), 1)
    return op


def _program(step: str, ops: Sequence[str], frames: Sequence[str] = ()) -> tuple[Instruction, ...]:
    loop = tuple(
        one for _ in range(TIME_STEPS) for name in ops for one in (_op(name, frames), Gap(20))
    )
    return tuple(
        one
        for number in range(STEPS)
        for one in (Within("step", step.format(number), 3, loop, 3), Gap(9))
    )


def diagnosis(
    folder: Path,
    file: str,
    write: Callable[[Recording], bytes],
    program: tuple[Instruction, ...],
) -> Diagnosis:
    recording = Recording(simulated([(MAIN, program)], Machine(latency_ns=2)), TICK_NS, MAIN)
    path = folder / file
    path.write_bytes(write(recording))
    return lp.diagnose(lp.ingest(path, folder / "run")[0])


def first_advice(found: Diagnosis) -> Advice:
    """The first advice for the first finding."""
    return found.shown[0].remedies[0]


def names(found: Diagnosis) -> set[str]:
    return {advice.name for advice in found.remedies}


#: Rows about the layers of Keras and Flax.
OF_LAYERS = {
    "Keras on cuDNN",
    "pad at the end",
    "Keras off its standard loop",
    "a layer op for Keras",
    "cuDNN for JAX",
}


@pytest.mark.parametrize(
    ("ops", "name", "words"),
    [
        ([*CELL, f"{KERAS}/lstm_cell/Relu:Relu"], "Keras on cuDNN", "activation='tanh'"),
        (
            [*CELL, f"{KERAS}/lstm_cell/Relu6:Relu6"],
            "Keras on cuDNN",
            "recurrent_activation='sigmoid'",
        ),
        (
            [*CELL, f"{KERAS}/lstm_cell/dropout/random_uniform/RandomUniform:RandomUniform"],
            "Keras on cuDNN",
            "recurrent_dropout=0",
        ),
        (
            [*CELL, f"{KERAS}/lstm_cell/MatMul_7:MatMul", "seq/lstm/stateless_dropout/Mul:Mul"],
            "Keras on cuDNN",
            "recurrent_dropout=0",
        ),
        (
            [*CELL, f"{KERAS}/SelectV2:SelectV2", f"{KERAS}/SelectV2_1:SelectV2"],
            "pad at the end",
            "16 times per step",
        ),
        ([*STANDARD, "while_15/body/_1/while/SelectV2:SelectV2"], "pad at the end", "8 times"),
        (STANDARD, "Keras off its standard loop", "use_cudnn=True"),
        (CELL, "Keras off its standard loop", "use_cudnn=True"),
    ],
)
def test_why_a_layer_of_keras_on_tensorflow_is_not_on_cudnn(
    ops: list[str], name: str, words: str, tmp_path: Path
) -> None:
    program = _program("train#{0}", ops)
    found = diagnosis(tmp_path, "tf.xplane.pb", xplane.of_tensorflow, program)
    first = first_advice(found)
    assert first.name == name
    assert words in f"{first.cause}; {first.sentence}"
    assert names(found) & OF_LAYERS == {name}


def test_a_gpu_that_was_not_recorded_gets_no_fix_for_cpus(tmp_path: Path) -> None:
    def without_devices(recording: Recording) -> bytes:
        space = schema.xspace()()
        space.ParseFromString(xplane.of_tensorflow(recording))
        for plane in [p for p in space.planes if p.name.startswith(b"/device:")]:
            space.planes.remove(plane)
        return bytes(space.SerializeToString())

    program = _program("train#{0}", [*CELL, f"{KERAS}/lstm_cell/Relu:Relu"])
    found = diagnosis(tmp_path, "tf.xplane.pb", without_devices, program)
    assert (found.slow.device, found.slow.runs_on) == (None, "cuda")
    given = {advice.name: advice.fix for advice in found.remedies}
    assert "activation='tanh'" in given["Keras on cuDNN"]
    assert not [fix for fix in given.values() if "BlockLSTM" in fix or "unroll=True" in fix]


def test_a_layer_of_keras_is_in_the_layer_table_without_its_activations(tmp_path: Path) -> None:
    names_of_products = [name for name in CELL if "MatMul" in name]
    program = _program("train#{0}", [*names_of_products, f"{KERAS}/lstm_cell/Relu:Relu"])
    found = diagnosis(tmp_path, "tf.xplane.pb", xplane.of_tensorflow, program)
    (row,) = found.slow.rows("layers")
    names = ("cell", "form", "time_steps", "layers", "directions", "hidden", "per_step")
    assert [row[name] for name in names] == ["lstm", "loop", TIME_STEPS, 1, 1, None, 1]
    assert row["kernels_per_time_step"] == 3


@pytest.mark.parametrize(
    "ops",
    [
        [f"model/decoder/while/{gate}" for gate in GATES],
        STANDARD[:-1],
        [f"rnn/while/basic_lstm_cell/{gate}" for gate in GATES],
        ["model/decoder/while/MatMul:MatMul", "model/decoder/while/SelectV2:SelectV2"],
        ["seq/lstm/CudnnRNNV3:CudnnRNNV3", "seq/dense/MatMul:MatMul", "seq/dense/Relu:Relu"],
    ],
)
def test_loops_of_others_and_layers_on_cudnn_are_no_layers_of_keras(
    ops: list[str], tmp_path: Path
) -> None:
    program = _program("train#{0}", ops)
    found = diagnosis(tmp_path, "tf.xplane.pb", xplane.of_tensorflow, program)
    assert not names(found) & OF_LAYERS


def test_a_step_on_cudnn_is_told_of_no_path_to_it(tmp_path: Path) -> None:
    found = lp.diagnose(lp.ingest(PROFILES / "tensorflow.xplane.pb", tmp_path / "run")[0])
    assert not names(found) & OF_LAYERS


@pytest.mark.parametrize(
    ("scope", "name", "words"),
    [
        (
            FLAX,
            "cuDNN for JAX",
            "16 matmuls per step",
        ),
        ("jit(<lambda>)/jvp()/while/body/closed_call", "cuDNN for JAX", "probably an LSTM"),
        (
            "jit(train_step)/jvp(lstm)/while/body/closed_call/lstm_cell",
            "a layer op for Keras",
            "3.14",
        ),
    ],
)
def test_a_loop_of_jax_in_place_of_cudnns_layer(
    scope: str, name: str, words: str, tmp_path: Path
) -> None:
    ops = [f"{scope}/{op}" for op in JAX]
    program = _program("train#{0}", ["PjitFunction(step)", *ops])
    found = diagnosis(tmp_path, "jax.xplane.pb", xplane.of_jax, program)
    assert found.slow.framework == "jax"
    first = first_advice(found)
    assert first.name == name
    assert words in f"{first.cause}; {first.sentence}"
    assert names(found) & OF_LAYERS == {name}


@pytest.mark.parametrize(
    "paths",
    [
        [f"jit(step)/jvp(RNN_0)/while/body/closed_call/GRUCell_0/{op}" for op in JAX],
        [f"jit(step)/jvp(layers)/while/body/closed_call/{op}" for op in JAX if op != "tanh"],
        ["jit(step)/jvp(lstm)/rnn", "jit(step)/jvp(dense)/dot_general"],
    ],
)
def test_other_loops_of_jax_and_its_layer_on_cudnn_are_not_taken_for_an_lstm(
    paths: list[str], tmp_path: Path
) -> None:
    program = _program("train#{0}", ["PjitFunction(step)", *paths])
    found = diagnosis(tmp_path, "jax.xplane.pb", xplane.of_jax, program)
    assert found.slow.framework == "jax"
    assert not names(found) & OF_LAYERS


@pytest.mark.parametrize(
    ("ops", "named"),
    [(["mul", "add"], True), (["tanh", "dot_general"], True), (["reduce_sum"], False)],
)
def test_a_loop_of_tiny_kernels_on_a_gpu_is_named(
    ops: list[str], named: bool, tmp_path: Path
) -> None:
    loop = "jit(step)/jvp()/while/body" if named else "jit(step)/jvp()/dense"
    program = _program("train#{0}", ["PjitFunction(step)", *(f"{loop}/{op}" for op in ops)])
    found = diagnosis(tmp_path, "jax.xplane.pb", xplane.of_jax, program)
    given = {advice.name: advice for advice in found.remedies}
    assert ("unroll the loop" in given) == named
    assert not named or reads_like_its_example(given["unroll the loop"])


def test_a_mask_keeps_keras_on_jax_from_cudnn(tmp_path: Path) -> None:
    loop = "jit(train_step)/jvp(lstm)/while/body/closed_call"
    ops = [*(f"{loop}/lstm_cell/{op}" for op in JAX), f"{loop}/jit(_where)/select_n"]
    program = _program("train#{0}", ["PjitFunction(step)", *ops])
    found = diagnosis(tmp_path, "jax.xplane.pb", xplane.of_jax, program)
    assert first_advice(found).name == "pad at the end"
    assert "Keras on JAX" in first_advice(found).seen


LAYER = "keras/src/layers/rnn/lstm.py(529): inner_loop"
FALLBACK = "keras/src/backend/torch/rnn.py(678): _fallback_lstm"


def test_keras_on_torch_that_never_reaches_cudnn(tmp_path: Path) -> None:
    program = _program("ProfilerStep#{0}", TORCH, (LAYER, FALLBACK))
    found = diagnosis(tmp_path, "k.pt.trace.json", kineto.of_today, program)
    assert first_advice(found).name == "a layer op for Keras"
    assert "upgrade Keras" in first_advice(found).fix


@pytest.mark.parametrize(
    ("ops", "frames"),
    [
        (TORCH, ("model.py(12): forward",)),
        (("aten::_cudnn_rnn", "aten::mm"), (LAYER,)),
        (TORCH, ("keras/src/layers/core/dense.py(221): call",)),
    ],
)
def test_a_loop_of_ones_own_and_keras_on_cudnn_are_not_told_to_upgrade(
    ops: tuple[str, ...], frames: tuple[str, ...], tmp_path: Path
) -> None:
    program = _program("ProfilerStep#{0}", ops, frames)
    found = diagnosis(tmp_path, "k.pt.trace.json", kineto.of_today, program)
    assert not names(found) & OF_LAYERS
