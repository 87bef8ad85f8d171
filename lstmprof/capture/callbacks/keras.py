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

    At the end of an epoch, this callback adds the step time and the share of each kind of time to
    Keras's ``logs``, which callbacks that come later in the list read (``TensorBoard``,
    ``CSVLogger``, ``History`` …). It also logs these numbers to W&B and MLflow if a run is active.

    Args:
        place: folder of the run.
        options: ``warmup``, ``timed``, ``steps``, ``force`` and ``quiet``, as for ``lp.profile``.
    """

    def __init__(self, place: Union[str, Path] = "traces/keras", **options: Any) -> None:
        super().__init__()
        self._profile = TrainingProfile(place, framework="keras", **options)
        self._metrics: Dict[str, float] = {}

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._profile.begin()

    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._profile.session.step_begin()

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        batches = (self.params or {}).get("steps")
        # the next step follows at once, except after an epoch's last batch
        follows = batches is not None and batch + 1 < batches
        self._metrics.update(self._profile.step_end(follows=follows))

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Add new metrics to ``logs`` for later callbacks; end the run after the last epoch."""
        if epoch + 1 == (self.params or {}).get("epochs"):
            self._metrics.update(self._profile.end())
        if logs is not None:
            logs.update(self._metrics)
            self._metrics = {}

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Write the run if the training ended early."""
        self._profile.end()
