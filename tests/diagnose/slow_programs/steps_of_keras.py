"""Steps of Keras on PyTorch or JAX, profiled into a folder: two arguments, which and where to.

``plain`` is a layer as it comes, ``masked`` one whose sequences are padded in front. On PyTorch
the stacks of Python are recorded, which alone name Keras there.
"""

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = sys.argv[1]
os.environ["JAX_PLATFORMS"] = "cpu"

import keras
import numpy as np

TIME_STEPS, BATCH, HIDDEN = 12, 4, 8
PROFILED = 2

INPUTS = np.zeros((BATCH, TIME_STEPS), np.int32)
INPUTS[:, TIME_STEPS // 2 :] = 1
TARGETS = np.zeros((BATCH, 2), np.float32)


def model(masked):
    """A text classifier."""
    layers = keras.layers
    built = keras.Sequential(
        [layers.Embedding(3, HIDDEN, mask_zero=masked), layers.LSTM(HIDDEN), layers.Dense(2)]
    )
    built.compile("sgd", "mse")
    built.train_on_batch(INPUTS, TARGETS)
    return built


def on_jax(built, folder):
    """Profile steps by JAX's profiler."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(str(folder), profiler_options=options)
    for number in range(PROFILED):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            built.train_on_batch(INPUTS, TARGETS)
    jax.profiler.stop_trace()


def on_torch(built, folder):
    """Profile steps by torch.profiler, with stacks."""
    import torch

    folder.mkdir(parents=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, with_stack=True) as profiler:
        for _ in range(PROFILED):
            built.train_on_batch(INPUTS, TARGETS)
            profiler.step()
    profiler.export_chrome_trace(str(folder / "steps.pt.trace.json"))


if __name__ == "__main__":
    profile, folder = {"jax": on_jax, "torch": on_torch}[sys.argv[1]], Path(sys.argv[2])
    for name in ("plain", "masked"):
        profile(model(name == "masked"), folder / name)
