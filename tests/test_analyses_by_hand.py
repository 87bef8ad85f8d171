"""Each analysis on a few runs made in code, whose answer is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report import runs

import lstmprof as lp
from analyses import (
    amp_cast_price,
    asr_cudnn_on_long,
    asr_spread,
    asr_versions,
    deepbench_roofline,
    glample_compile_time,
    imdb_epoch,
    kernel_study_keras_modes,
    kernel_study_kernels,
    kernel_study_launch_share,
    ptb_words_per_second,
    steps,
)
from analyses.claims import Claim

Made = Callable[..., lp.Run]
ASR = {"name": "1x320-ce-short-t20", "batch": 64, "time_steps": 20, "hidden": 320}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A run of ``implementation`` whose step is ``ms``, on a CPU that was never there."""

    def run(
        implementation: str,
        ms: float,
        workload: dict[str, Any] = ASR,
        name: str | None = None,
        **facts: Any,
    ) -> lp.Run:
        name = name or f"{implementation}-{workload['name']}"
        base = {"framework": "torch", "device": "cpu", "workload": {**runs.WORKLOAD, **workload}}
        walls = (int(ms * 1e6),) * 20
        runs.run(
            tmp_path,
            name,
            implementation=implementation,
            step_ns=walls[0],
            walls_ns=walls,
            facts={**base, **facts},
        )
        return lp.read(tmp_path / name)

    return run


def claim(claims: list[Claim], says: str) -> Claim:
    """The one that says so."""
    (only,) = [c for c in claims if says in c.says]
    return only


def test_a_spread_is_over_pytorchs_own_layer(made: Made) -> None:
    rows = asr_spread.table(
        [made("torch-nn-lstm", 20), made("torch-lstmcell-basic", 30), made("keras-lstm", 98)]
    )
    short = rows[rows.network == "1x320-ce-short"].set_index("implementation")
    assert short.loc["torch-lstmcell-basic", "ratio"].value == pytest.approx(1.5)
    assert short.loc["torch-lstmcell-basic", "their_ratio"] == pytest.approx(31 / 11)
    claims = asr_spread.claims(rows)
    # a spread per network, eight claims in words; of 31 lines one per network is the base
    assert len(claims) == 4 + 8 + 31 - 4
    spread = claim(claims, "1x320-ce-short: the slowest over the fastest")
    assert (spread.theirs, spread.here) == (5.1, "keras-lstm over torch-nn-lstm")
    assert spread.ours is not None
    assert spread.ours.value == pytest.approx(4.9)
    verdicts = {
        system: claim(claims, f"1x320-ce-short: {system} over").verdict
        for system in ("PyTorch LSTMCell-basic", "Keras-TensorFlow LSTM", "Lasagne LSTMLayer")
    }
    assert verdicts == {
        "PyTorch LSTMCell-basic": "differs here",
        "Keras-TensorFlow LSTM": "reproduced",
        "Lasagne LSTMLayer": "not captured",
    }
    assert claim(claims, "ce-short: TensorFlow cuDNNLSTM").verdict == "needs a GPU"
    ctc = claim(claims, "4x320-ctc-long: Lasagne LSTMLayer over PyTorch")
    assert ctc.verdict == "needs a CTC loss: Theano has no CTC loss"


def test_claims_in_words_are_computed_from_the_studys_table(made: Made) -> None:
    long = {**ASR, "name": "1x320-ce-long-t20"}
    others = {"lasagne-lstm": 30, "keras-theano-lstm": 20, "torch-lstmcell-basic": 10}
    runs_made = [made(name, ms, long) for name, ms in {**others, "tf-lstmcell": 32}.items()]
    claims = [
        c for c in asr_spread.claims(asr_spread.table(runs_made)) if "the text says" in c.says
    ]
    theirs = [round(c.theirs, 2) for c in claims if c.theirs]
    # 169/130, 433/130, 483/296, 543/296, 3689/528, 2464/528, 597/534, 2921/2464
    assert theirs == [1.3, 3.33, 1.63, 1.83, 6.99, 4.67, 1.12, 1.19]
    flexible = claim(claims, "TensorFlow LSTMCell over the mean")
    assert flexible.ours is not None
    assert flexible.ours.value == pytest.approx(1.6)
    assert [c.verdict for c in claims if "four layers" in c.says] == ["needs a GPU"] * 2


def test_the_work_of_a_run_is_shares_of_its_profiled_steps(made: Made) -> None:
    work = steps.work(made("torch-nn-lstm", 0.04, device="cuda:0"))
    # of each 10 µs the kernel, a matmul, runs 3
    assert work["product_share"] == pytest.approx(0.3)


def test_of_several_versions_and_lengths_the_newest_and_longest_is_compared(made: Made) -> None:
    short = {**ASR, "name": "1x320-ce-short-t5", "time_steps": 5}
    versions = {"old": {"torch": "1.8.1"}, "new": {"torch": "2.13.0"}}
    own = steps.table(
        [
            made("torch-nn-lstm", 9, short, versions=versions["new"]),
            made("torch-nn-lstm", 30, name="old", versions=versions["old"]),
            made("torch-nn-lstm", 20, name="new", versions=versions["new"]),
            made("torch-nn-lstm", 50, name="amp", precision="amp-bf16", versions=versions["new"]),
            made("torch-nn-lstm", 5, name="forward", mode="forward", versions=versions["new"]),
        ]
    )
    assert steps.of_network(own, "1x320-ce-short").run.tolist() == ["new"]
    in_turn = made("torch-nn-lstm", 22, name="z", versions=versions["new"], turn_with=["y", "z"])
    own = steps.table([in_turn, made("torch-nn-lstm", 20, name="again", versions=versions["new"])])
    assert steps.of_network(own, "1x320-ce-short").run.tolist() == ["z"]
    rows = asr_versions.table([made("torch-nn-lstm", 20, name="n2", versions=versions["new"])])
    assert len(rows) == 0


def test_a_shortened_network_of_labels_is_that_network(made: Made) -> None:
    deep = {**ASR, "name": "4x320-ctc-long-t10-y2", "time_steps": 10}
    own = steps.table([made("torch-nn-lstm", 9, deep)])
    assert len(steps.of_network(own, "4x320-ctc-long")) == 1
    assert not len(steps.of_network(own, "4x320-ce-long"))


def test_versions_are_ordered_by_number_and_compared_with_the_newest(made: Made) -> None:
    runs_made = [
        made("torch-nn-lstm", ms, name=version, versions={"torch": version})
        for version, ms in (("2.13.0", 20), ("2.4.0", 25), ("1.8.1", 30))
    ]
    rows = asr_versions.table(runs_made)
    assert rows.version.tolist() == ["1.8.1", "2.4.0", "2.13.0"]
    assert [ratio.value for ratio in rows.over_newest] == pytest.approx([1.5, 1.25, 1.0])
    turns = {"turn_with": ["a", "b"]}
    runs_made += [
        made("torch-nn-lstm", ms, name=name, versions={"torch": version}, **turns)
        for name, version, ms in (("a", "1.8.1", 60), ("b", "2.13.0", 30))
    ]
    beside = asr_versions.table(runs_made)
    assert beside.version.tolist() == ["1.8.1", "2.13.0"]
    assert [ratio.value for ratio in beside.over_newest] == pytest.approx([2.0, 1.0])
    claims = asr_versions.claims(rows)
    long = claim(claims, "1x320-ce-long: PyTorch cuDNNLSTM")
    assert long.theirs == pytest.approx(145.5 / 79.5)
    assert long.verdict == "needs PyTorch 0.1.12, which no package index has"


def test_a_lead_that_grows_is_the_long_one_over_the_short_one(made: Made) -> None:
    short = {**ASR, "name": "1x320-ce-short-t5", "time_steps": 5}
    rows = asr_cudnn_on_long.table(
        [
            made("torch-nn-lstm", 10, short),
            made("torch-lstmcell-basic", 12, short),
            made("torch-nn-lstm", 20),
            made("torch-lstmcell-basic", 36),
        ]
    )
    assert [lead.value for lead in rows.lead] == pytest.approx([1.2, 1.8])
    found = claim(asr_cudnn_on_long.claims(rows), "torch-lstmcell-basic")
    assert found.theirs == pytest.approx(307 / 80 / (31 / 11))
    assert found.ours is not None
    assert found.ours.value == pytest.approx(1.5)


def test_an_example_is_a_step_over_the_batch(made: Made) -> None:
    network = {"name": "glample-h128-b32", "hidden": 128, "batch": 32, "time_steps": 30}
    rows = glample_compile_time.table(
        [
            made("torch-nn-lstm", 3.2, network, compile_ns=50_000_000),
            made("tf-lstmcell", 6.4, network, framework="tensorflow", compile_ns=1_000_000_000),
        ]
    )
    here = rows[rows.network == "glample-h128-b32"].set_index("library")
    assert here.loc["Torch", "us"].value == pytest.approx(100)
    assert here.loc["TensorFlow", "first_s"] == pytest.approx(1.0)
    claims = glample_compile_time.claims(rows)
    example = claim(claims, "glample-h128-b32: TensorFlow over Torch, an example in training")
    assert (example.theirs, example.verdict) == (pytest.approx(820 / 434.4), "reproduced")
    first = claim(claims, "glample-h128-b32: TensorFlow over Torch, first pass")
    assert first.ours is not None
    assert first.ours.value == pytest.approx(20)
    assert claim(claims, "glample-h128-b32: Theano over Torch, first").verdict == "not captured"


def test_epochs_are_whole_batches_of_all_reviews(made: Made) -> None:
    network = {"name": "imdb-gru", "cell": "gru", "batch": 64, "vocabulary": 30_000}
    rows = imdb_epoch.table([made("torch-nn-lstm", 10, network), made("keras-lstm", 17, network)])
    seconds = rows.set_index("system").s
    assert seconds["PyTorch"].value == pytest.approx(0.010 * 391 * 3)
    verdicts = {claim.says: claim.verdict for claim in imdb_epoch.claims(rows)}
    assert verdicts["Keras (TensorFlow) over PyTorch, on a P100"] == "reproduced"
    assert verdicts["Keras (TensorFlow) over PyTorch, on a K80"] == "differs here"
    assert verdicts["CNTK over PyTorch, on a K80"] == "needs CNTK"


def test_a_word_is_a_step_over_batch_times_time_steps(made: Made) -> None:
    small = {"name": "ptb-large-h200-t20-d200", "hidden": 200, "batch": 20, "time_steps": 20}
    large = {"name": "ptb-large", "hidden": 1500, "batch": 20, "time_steps": 35}
    vocabulary = {"vocabulary": 10_000}
    rows = ptb_words_per_second.table(
        [
            made("torch-nn-lstm", 40, {**small, **vocabulary}),
            made("torch-nn-lstm", 1400, {**large, **vocabulary}),
        ]
    )
    assert sorted(rows.words_per_s) == pytest.approx([500, 10_000])
    only = claim(ptb_words_per_second.claims(rows), "a word of the large model")
    assert only.theirs == pytest.approx(24 / 55 * 13)
    assert only.ours is not None
    assert only.ours.value == pytest.approx(20)
    # two layers of 4·200·400 and 200·10,000; of 4·1500·3000 and 1500·10,000
    assert ptb_words_per_second.multiplications(200) == 2_640_000
    assert ptb_words_per_second.multiplications(1500) == 51_000_000


def test_words_per_second_are_over_those_of_basiclstmcell(made: Made) -> None:
    large = {"name": "ptb-large", "hidden": 1500, "batch": 20, "time_steps": 35}
    network = {**large, "vocabulary": 10_000}
    rows = ptb_words_per_second.table(
        [made("tf-basiclstmcell", 330, network), made("tf-lstmblockcell", 300, network)]
    )
    claims = ptb_words_per_second.claims(rows)
    block = claim(claims, "LSTMBlockCell (17,000 words per second) over BasicLSTMCell (15,000)")
    assert block.ours is not None
    assert (block.theirs, block.ours.value) == (pytest.approx(17 / 15), pytest.approx(1.1))
    cudnn = claim(claims, "CudnnLSTM (32,000")
    assert (cudnn.theirs, cudnn.verdict) == (pytest.approx(32 / 15), "needs a GPU")
    assert claim(claims, "on two P40").verdict == "needs two GPUs"


def test_an_rnn_needs_rnn_cells() -> None:
    claims = glample_compile_time.claims(glample_compile_time.table([]))
    rnn = claim(claims, "glample-rnn-h512-b32: TensorFlow over Torch, an example in training")
    assert rnn.theirs == pytest.approx(349.7 / 288.2)
    assert rnn.verdict == "needs RNN cells: tf-lstmcell has none"
    lstm = claim(claims, "glample-h512-b32: TensorFlow over Torch, an example in training")
    assert lstm.verdict == "not captured"


def test_a_share_of_the_peak_counts_the_products_of_a_whole_step(made: Made) -> None:
    peaks = {16: {"gemm_flops_per_s": 1e11}, 128: {"gemm_flops_per_s": 4e10}}  # then slower
    sizes = {"hidden": 512, "time_steps": 25}
    one = 2 * 4 * 512 * 512 * 25  # of a sequence, forward, the recurrence alone
    rows = deepbench_roofline.table(
        [
            made(
                "torch-nn-lstm",
                6 * one * batch / 1e11 * 1e3 * 2,  # half as fast as the peak
                {**sizes, "batch": batch, "name": f"deepbench-lstm-h512-b{batch}-t25"},
                peaks=peaks[batch],
            )
            for batch in (16, 128)
        ]
    )
    here = rows[rows.peak_share.notna()]
    assert here.peak_share.tolist() == pytest.approx([0.5, 0.5], rel=1e-3)
    assert here.their_tflops.tolist() == pytest.approx([0.766, 4.305], abs=5e-3)
    found = claim(deepbench_roofline.claims(rows), "lstm of 512")
    assert found.theirs == pytest.approx(3.856 / 2.197, rel=1e-3)
    assert found.verdict == "differs here"


def test_a_mode_is_compared_with_the_fastest(made: Made) -> None:
    rows = kernel_study_keras_modes.table(
        [
            made("keras-lstm", 10, mode="forward"),
            made("keras-lstm-mode1", 25, mode="forward"),
            made("keras-lstm-mode2", 15, mode="forward"),
        ]
    )
    assert rows["mode"].tolist() == [0, 1, 2]
    assert [ratio.value for ratio in rows.over_fastest] == pytest.approx([1.0, 2.5, 1.5])
    said = kernel_study_keras_modes.claims(rows)
    assert [(claim.theirs, claim.verdict) for claim in said] == [(None, "needs a GPU")] * 2


def test_a_mean_percentage_error_is_over_all_sizes_of_both(made: Made) -> None:
    small = {**ASR, "name": "1x320-ce-short-t5", "time_steps": 5}
    rows = kernel_study_kernels.table(
        [
            made("keras-lstm", 10, small, mode="forward"),
            made("keras-lstm", 20, mode="forward"),
            made("keras-lstm-mode1", 15, small, mode="forward"),
            made("keras-lstm-mode1", 50, mode="forward"),
            made("keras-lstm-mode2", 30, mode="train"),
        ]
    )
    assert rows.loc[0, "our_mpe"] == pytest.approx(-(0.5 + 1.5) / 2)
    assert rows.sizes.tolist() == [2, 0, 0, 0, 0, 0, 0, 0]
    modes = claim(kernel_study_kernels.claims(rows), "TF mode 0 vs TF mode 1: MPE −1.822")
    assert modes.ours is not None
    assert (modes.theirs, modes.ours.value) == (pytest.approx(2.822), pytest.approx(2.0))
    direct = claim(kernel_study_kernels.claims(rows), "DeepBench vs PyTorch: MPE −0.530")
    assert (direct.theirs, direct.verdict) == (pytest.approx(1.53), "needs a GPU")


def test_launching_is_its_share_of_the_whole_step(made: Made) -> None:
    gpu = made("torch-nn-lstm", 0.04, device="cuda:0")
    assert len(kernel_study_launch_share.table([made("keras-lstm", 10)])) == 0
    (row,) = kernel_study_launch_share.table([gpu]).to_dict("records")
    # of each 10 µs the kernel runs 3; 2 pass in the launch call and 1 until the kernel starts
    assert row["launching"] == pytest.approx(0.3)
    assert row["waits_for_host"] == pytest.approx(0.7)


def test_casts_are_of_the_run_in_mixed_precision(made: Made, tmp_path: Path) -> None:
    cast = "unrolled_elementwise_kernel<direct_copy_kernel_cuda::LoadWithCast<1>>"
    facts = {"framework": "torch", "workload": {**runs.WORKLOAD, **ASR}, "precision": "amp-fp16"}
    runs.run(
        tmp_path,
        "amp",
        implementation="torch-nn-lstm",
        kernels=6,
        names=(cast, "ampere_sgemm_128x64_nn"),
        walls_ns=(60_000,) * 20,
        facts=facts,
    )
    fp32 = made("torch-nn-lstm", 0.04, device="cuda:0")
    (row,) = amp_cast_price.table([lp.read(tmp_path / "amp"), fp32]).to_dict("records")
    assert row["over_fp32"].value == pytest.approx(1.5)
    assert row["casts_a_step"] == pytest.approx(3)  # every other of six kernels
    assert row["cast_share"] == pytest.approx(0.15)  # 3 of 3 µs each in 60
    amp = claim(amp_cast_price.claims(pd.DataFrame([row])), "PyTorch AMP over PyTorch, on average")
    assert (amp.theirs, amp.verdict) == (pytest.approx(1.63), "reproduced")
