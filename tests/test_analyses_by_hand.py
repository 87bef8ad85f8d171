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
    sweep,
)
from analyses.claims import Claim, Measured
from benchmarks import kernel_sweep

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


@pytest.fixture(autouse=True)
def sweep_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the sweeps, which is not there unless a test writes it."""
    monkeypatch.setattr(sweep, "FILE", tmp_path / "sweep.csv")
    return tmp_path / "sweep.csv"


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
    # the fastest, a spread per network, eight ratios, the wrappers; of 31 lines four are the base
    assert len(claims) == 1 + 4 + 8 + 1 + 31 - 4
    fastest = claim(claims, "cuDNN's layer is the fastest")
    assert (fastest.kind, fastest.seen) == (
        "reproduced",
        "faster than torch-nn-lstm (oneDNN on a CPU): 0 of 2 others",
    )
    spread = claim(claims, "1x320-ce-short: the slowest over the fastest")
    assert (spread.theirs, spread.here) == (5.1, "keras-lstm over torch-nn-lstm")
    assert spread.ours is not None
    assert spread.ours.value == pytest.approx(4.9)
    verdicts = {
        system: claim(claims, f"1x320-ce-short: {system} over").verdict
        for system in ("PyTorch LSTMCell-basic", "Keras-TensorFlow LSTM", "Lasagne LSTMLayer")
    }
    assert verdicts == {
        "PyTorch LSTMCell-basic": "differs here (CPU, 20 time steps)",
        "Keras-TensorFlow LSTM": "reproduced",
        "Lasagne LSTMLayer": "needs a GPU and Theano for CUDA",
    }
    assert claim(claims, "ce-short: TensorFlow cuDNNLSTM").verdict == "needs a GPU"
    ctc = claim(claims, "4x320-ctc-long: Lasagne LSTMLayer over PyTorch")
    assert ctc.verdict == "needs a GPU and Theano for CUDA"
    assert ctc.command.endswith("python 4x320-LSTM_ctc/bench_lasagne_LSTMLayer.py")


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
    assert [c.verdict for c in claims if "four layers" in c.says] == [
        "needs a GPU",
        "needs a GPU and Theano for CUDA",
    ]


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
    successive_processes = made(
        "torch-nn-lstm", 22, name="z", versions=versions["new"], turn_with=["y", "z"]
    )
    own = steps.table(
        [successive_processes, made("torch-nn-lstm", 20, name="again", versions=versions["new"])]
    )
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
    long = claim(claims, "1x320-ce-long: PyTorch cuDNNLSTM of PyTorch 0.1.12")
    assert long.theirs == pytest.approx(145.5 / 79.5)
    assert long.verdict == "needs a GPU and PyTorch 0.1.12, which no package index has"


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


def test_a_lead_at_the_lengths_of_the_study_is_taken_first(made: Made) -> None:
    long = {**ASR, "name": "1x320-ce-long", "batch": 32, "time_steps": 1000}
    own = {**ASR, "name": "1x320-ce-short", "time_steps": 100}
    shorter = {**ASR, "name": "1x320-ce-short-t5", "time_steps": 5}
    rows = asr_cudnn_on_long.table(
        [
            *(made("torch-nn-lstm", 10, network) for network in (shorter, own, long)),
            made("torch-lstmcell-basic", 11, shorter),
            made("torch-lstmcell-basic", 20, own),
            made("torch-lstmcell-basic", 30, long),
        ]
    )
    found = claim(asr_cudnn_on_long.claims(rows), "torch-lstmcell-basic")
    assert found.ours is not None
    assert found.ours.value == pytest.approx(1.5)
    assert found.here == "torch-lstmcell-basic, 100 and 1000 time steps"
    ends = {
        "smaller because": (1.09, 1.11),
        "too wide": (0.9, 1.5),
        "larger than": (1.9, 2.1),
    }
    for words, (low, high) in ends.items():
        middle = (low + high) / 2
        rows["lead"] = [Measured(1.0), Measured(1.0, 1.0, 1.0), Measured(middle, low, high)]
        assert words in asr_cudnn_on_long.conclusion(rows)


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
    example = claim(claims, "glample-h128-b32: TensorFlow over Torch, training")
    assert (example.theirs, example.verdict) == (pytest.approx(820 / 434.4), "reproduced")
    first = claim(claims, "glample-h128-b32: TensorFlow over Torch, first pass")
    assert first.ours is not None
    assert first.ours.value == pytest.approx(20)
    assert claim(claims, "glample-h128-b32: Theano over Torch, first").verdict == "needs a GPU"


def test_epochs_are_whole_batches_of_all_reviews(made: Made) -> None:
    network = {"name": "imdb-gru", "cell": "gru", "batch": 64, "vocabulary": 30_000}
    rows = imdb_epoch.table([made("torch-nn-lstm", 10, network), made("keras-lstm", 17, network)])
    seconds = rows.set_index("system").s
    assert seconds["PyTorch"].value == pytest.approx(0.010 * 391 * 3)
    verdicts = {claim.says: claim.verdict for claim in imdb_epoch.claims(rows)}
    assert verdicts["Keras (TensorFlow) over PyTorch, on a P100"] == "reproduced"
    assert (
        verdicts["Keras (TensorFlow) over PyTorch, on a K80"] == "differs here (CPU, 5 time steps)"
    )
    assert verdicts["CNTK over PyTorch, on a K80"] == "needs a GPU and CNTK"


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
    block, cudnn, two = (c for c in claims if c.place == "table")
    assert block.ours is not None
    assert (block.theirs, block.ours.value) == (pytest.approx(17 / 15), pytest.approx(1.1))
    assert block.raw == "17,000 / 15,000 words per second"
    assert (cudnn.theirs, cudnn.verdict) == (pytest.approx(32 / 15), "needs a GPU")
    assert (two.theirs, two.verdict) == (pytest.approx(25 / 15), "needs two GPUs")


def test_an_rnn_of_the_study_is_kerass() -> None:
    claims = glample_compile_time.claims(glample_compile_time.table([]))
    rnn = claim(claims, "glample-rnn-h512-b32: TensorFlow over Torch, training")
    assert rnn.theirs == pytest.approx(349.7 / 288.2)
    assert rnn.command == (
        "lstmprof capture --impl torch-nn-lstm --impl keras-lstm --device cuda --mode train "
        "--workload glample-rnn-h512-b32"
    )
    theano = claim(claims, "glample-h512-b128: Theano over Torch, forward")
    assert theano.command.endswith("python theano/rnn.py -n lstm -b 128 -l 512 -s 30")


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
    assert found.verdict == "differs here (CPU)"


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
    modes = claim(kernel_study_kernels.claims(rows), "TF mode 0 vs TF mode 1:")
    assert modes.theirs == pytest.approx(2.822)
    assert (modes.verdict, modes.seen[:5]) == ("needs a GPU", "2.00×")
    assert modes.raw == "MPE −1.822"
    direct = claim(kernel_study_kernels.claims(rows), "DeepBench vs PyTorch:")
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
    amp = claim(amp_cast_price.claims(pd.DataFrame([row])), "63 % slower than PyTorch on average")
    assert (amp.theirs, amp.verdict) == (pytest.approx(1.63), "reproduced")


#: Batch 16, 100 time steps and 256 units are the centre; ms per step of each layer, ops per step.
SWEPT = """\
implementation,precision,batch,time_steps,hidden,step_ms,low_ms,high_ms,ops,cast_ms,product_ms
keras-lstm-mode1,fp32,1,100,256,8,7.92,8.08,3000,0,4
keras-lstm-mode2,fp32,1,100,256,10,9.9,10.1,2000,0,4
keras-lstm-mode1,fp32,16,100,256,18,17.82,18.18,3000,0,9
keras-lstm-mode2,fp32,16,100,256,20,19.8,20.2,2000,0,10
keras-lstm-mode1,fp32,256,100,256,60,59.4,60.6,3000,0,45
keras-lstm-mode2,fp32,256,100,256,40,39.6,40.4,2000,0,30
keras-lstm-mode1,fp32,16,10,256,3,2.97,3.03,300,0,1
keras-lstm-mode2,fp32,16,10,256,2,1.98,2.02,200,0,1
torch-nn-lstm,fp32,16,10,256,1,0.99,1.01,10,0,1
torch-nn-lstm,fp32,16,100,256,10,9.9,10.1,10,0,9
torch-nn-lstm,fp32,16,100,512,40,39.6,40.4,10,0,36
torch-nn-lstm,amp-bf16,16,10,256,2,1.98,2.02,20,0.5,1
torch-nn-lstm,amp-bf16,16,100,256,10,9.9,10.1,20,2,7
torch-nn-lstm,amp-bf16,16,100,512,20,19.8,20.2,20,2,18
keras-lstm,fp32,16,10,256,5,4.95,5.05,200,0,1
keras-lstm,fp32,16,100,256,50,49.5,50.5,2000,0,10
keras-lstm,fp32,16,100,512,100,99,101,2000,0,40
keras-lstm,amp-bf16,16,10,256,6,5.94,6.06,200,1,1
keras-lstm,amp-bf16,16,100,256,45,44.55,45.45,2000,4,8
keras-lstm,amp-bf16,16,100,512,88,87.12,88.88,2000,4,20
"""


def test_a_line_of_the_sweep_is_per_step(made: Made) -> None:
    line = kernel_sweep.row(made("torch-nn-lstm", 0.04, device="cuda:0", mode="forward"))
    # four kernels of 3 µs, each launched by an op of its own; the first, third, … are matmuls
    assert (line["step_ms"], line["ops"]) == (0.04, 4)
    assert (line["product_ms"], line["cast_ms"]) == (0.012, 0.0)
    assert {*line} == {*sweep.COLUMNS}


def test_a_sweep_changes_one_size_and_is_compared_at_the_same_sizes(sweep_file: Path) -> None:
    sweep_file.write_text(SWEPT, encoding="utf-8")
    modes = kernel_study_keras_modes.claims(pd.DataFrame())
    # 8/10, 18/20, 60/40 by batch; 3/2, 18/20 by time steps
    assert modes[0].seen == "mode 1 over mode 2: 0.80× at 1, 0.90× at 16, 1.50× at 256 (batch)"
    assert modes[1].seen == "mode 1 over mode 2: 1.50× at 10, 0.90× at 100 (time steps)"
    assert [made.verdict for made in modes] == ["reproduced", "reproduced"]
    noisy = SWEPT.replace("20,19.8,20.2", "20,15,25")  # mode 2 at the centre: 18/20 may be above 1
    sweep_file.write_text(noisy, encoding="utf-8")
    modes = kernel_study_keras_modes.claims(pd.DataFrame())
    assert [made.verdict for made in modes] == ["likely reproduced", "likely reproduced"]
    assert "mode 1 runs 30 ops per time step, and mode 2 only 20" in modes[0].why


def test_table_2_is_computed_of_the_sweep_as_the_study_does(sweep_file: Path) -> None:
    sweep_file.write_text(SWEPT, encoding="utf-8")
    rows = kernel_study_kernels.table([]).set_index(["first", "second"])
    one_two = rows.loc[("TF mode 1", "TF mode 2")]
    # (8 − 10)/8, (18 − 20)/18, (60 − 40)/60, (3 − 2)/3
    assert one_two.our_mpe == pytest.approx((-0.25 - 1 / 9 + 1 / 3 + 1 / 3) / 4)
    amp = rows.loc[("PyTorch", "PyTorch AMP")]
    assert amp.our_mpe == pytest.approx((-1 + 0 + 0.5) / 3)
    assert (amp.sizes, amp.conditions) == (3, "CPU, bf16, 3 sizes")
    claims = kernel_study_kernels.claims(rows.reset_index())
    by_place = {made.place: made for made in claims}
    # 5/1, 50/10, 100/40
    assert by_place["claim (e), time"].seen == (
        "keras-lstm takes 2.50 to 5.00 times as long (median 5.00)"
    )
    assert by_place["claim (e), ops"].seen == (
        "keras-lstm runs 2,000 ops per step, torch-nn-lstm 10 (medians)"
    )
    assert by_place["claim (d), batch"].kind == "needs a GPU"


def test_casts_and_matmuls_are_compared_along_the_sweep(sweep_file: Path) -> None:
    sweep_file.write_text(SWEPT, encoding="utf-8")
    found = {made.place: made for made in amp_cast_price.claims(pd.DataFrame())}
    average = found["claim (f), average"]
    assert average.ours is not None
    assert average.ours.value == pytest.approx((2 + 1 + 0.5) / 3)
    assert found["claim (g), casts"].seen == (
        "0.5 ms (25 % of the step) at 10, 2 ms (20 % of the step) at 100 (time steps)"
    )
    assert found["claim (g), result"].seen.endswith("casts take 20 % at 256, 10 % at 512")
    kinds = {place: made.kind for place, made in found.items()}
    assert kinds == {
        "claim (f), casts": "reproduced",
        "claim (f), average": "differs here",
        "claim (f), DeepBench": "needs a GPU",
        "claim (f), time steps": "differs here",  # 10/10 at 100
        "claim (f), TensorFlow": "reproduced",  # 88/100
        "claim (f), small": "differs here",  # 45/50 at 256 units, the smallest
        "claim (g), casts": "reproduced",
        "claim (g), products": "reproduced",
        "claim (g), result": "reproduced",  # 20/40 at 512
    }
