"""Import Keras: the package ``keras``, or else ``tensorflow.keras`` (TensorFlow before 2.6)."""

from __future__ import annotations

import os
from typing import Any


def _installed() -> Any:
    try:
        import keras
    except ModuleNotFoundError as error:
        if error.name != "keras" or os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
            raise
        from tensorflow import keras
    return keras


keras = _installed()
IS_SECOND = keras.__version__.startswith("2.")
