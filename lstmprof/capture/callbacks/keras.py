"""``lp.keras.Profile``: a callback for ``fit``, on any backend of Keras 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Union

import keras

from lstmprof.capture.callbacks import TrainingProfile


class Profile(keras.callbacks.Callback):  # type: ignore[misc]
    """Time and profile some steps of ``fit``, write a run, and print its verdict.

    ::

        model.fit(x, y, callbacks=[lp.keras.Profile("traces/mine")])

    The step time and the shares of its parts are added to the logs of the next epoch end, where the
    callbacks after this one read them (``TensorBoard``, ``CSVLogger``, ``History`` …). They are
    also logged to W&B and MLflow if a run is active.

    Args:
        place: folder of the run.
        options: ``warmup``, ``timed``, ``steps``, ``force`` and ``quiet``, as for ``lp.profile``.
    """

    def __init__(self, place: Union[str, Path] = "traces/keras", **options: Any) -> None:
        super().__init__()
        self._profile = TrainingProfile(place, framework="keras", **options)
        self._metrics: Dict[str, float] = {}

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Begin the measurement."""
        self._profile.begin()

    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._profile.session.step_begin()

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        batches = (self.params or {}).get("steps")
        # the next epoch begins its first step itself
        follows = batches is not None and batch + 1 < batches
        self._metrics.update(self._profile.step_end(follows=follows))

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Pass new metrics to the callbacks after this one."""
        if epoch + 1 == (self.params or {}).get("epochs"):
            self._metrics.update(self._profile.end())
        if logs is not None:
            logs.update(self._metrics)
            self._metrics = {}

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Write the run if the training ended early."""
        self._profile.end()
