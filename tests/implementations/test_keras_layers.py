"""Keras's layers are made with the options that a row's name promises."""

import importlib

import pytest

from lstmprof.workloads import Workload


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("mode", [1, 2])
def test_both_directions_have_the_rows_mode_and_no_cudnn(mode: int, cell: str) -> None:
    pytest.importorskip("keras")
    file = importlib.import_module(f"lstmprof.implementations.keras.lstm_mode{mode}")
    (both,) = file.build(Workload("tiny", 1, 4, True, 2, 3, 5, 3, "ce", cell=cell)).lstms
    layers = (both.forward_layer, both.backward_layer)
    assert [layer.cell.implementation for layer in layers] == [mode, mode]
    assert [layer.use_cudnn for layer in layers] == [False, False]
