"""``lp.lightning.Profile``: a callback for the ``Trainer`` of PyTorch Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Union

try:
    from lightning.pytorch import Callback
except ImportError:  # the name of the package before Lightning 2
    from pytorch_lightning import Callback

from lstmprof.capture.callbacks import TrainingProfile


class Profile(Callback):  # type: ignore[misc]
    """Time and profile some optimizer steps, write a run, and print its verdict.

    ::

        Trainer(callbacks=[lp.lightning.Profile("traces/mine")])

    The step time and the share of each kind of time go to the trainer's loggers, and to W&B and
    MLflow if a run is active. With several processes, rank 0 is profiled.

    Args:
        place: folder of the run.
        options: ``warmup``, ``timed``, ``steps``, ``force`` and ``quiet``, as for ``lp.profile``.
    """

    def __init__(self, place: Union[str, Path] = "traces/lightning", **options: Any) -> None:
        self._profile = TrainingProfile(place, framework="torch", **options)
        self._updates = 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        if trainer.is_global_zero:
            self._profile.begin()

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self._profile.session.step_begin()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End a step when the optimizer has run: a step may have several batches."""
        if trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self._log(trainer, self._profile.step_end(follows=not trainer.is_last_batch))

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self._log(trainer, self._profile.end())

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self._log(trainer, self._profile.end(type(exception)))

    def _log(self, trainer: Any, metrics: Dict[str, float]) -> None:
        for logger in trainer.loggers if metrics else ():
            logger.log_metrics(metrics, step=trainer.global_step)
