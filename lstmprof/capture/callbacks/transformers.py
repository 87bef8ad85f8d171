"""``lp.transformers.Profile``: a callback for the ``Trainer`` of Hugging Face Transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Union

from transformers import TrainerCallback

from lstmprof.capture.callbacks import TrainingProfile


class Profile(TrainerCallback):  # type: ignore[misc]
    """Time and profile some steps of a Trainer, write a run, and print its verdict.

    ::

        Trainer(model, args, train_dataset=data, callbacks=[lp.transformers.Profile("traces/mine")])

    The step time and the share of each kind of time go to TensorBoard if ``report_to`` names it
    (``runs/lstmprof`` in the output folder), and to W&B and MLflow if a run is active. With several
    processes, rank 0 is profiled.

    Args:
        place: folder of the run.
        options: ``warmup``, ``timed``, ``steps``, ``force`` and ``quiet``, as for ``lp.profile``.
    """

    def __init__(self, place: Union[str, Path] = "traces/transformers", **options: Any) -> None:
        self._profile = TrainingProfile(place, framework="torch", **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self._profile.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin a step, which may have several batches."""
        self._profile.session.step_begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # the next step does not follow at once if the Trainer first evaluates, saves or logs
        follows = not (control.should_evaluate or control.should_save or control.should_log)
        self._log(args, state, self._profile.step_end(follows=follows))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._log(args, state, self._profile.end())

    def _log(self, args: Any, state: Any, metrics: Dict[str, float]) -> None:
        if metrics and "tensorboard" in (args.report_to or ()):
            from torch.utils.tensorboard import SummaryWriter

            with SummaryWriter(str(Path(args.output_dir) / "runs" / "lstmprof")) as writer:
                for name, value in metrics.items():
                    writer.add_scalar(name, value, state.global_step)
