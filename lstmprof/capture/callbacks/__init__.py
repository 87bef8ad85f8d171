"""Callbacks of Keras, Lightning and Transformers that measure a training with ``lp.profile``.

::

    keras, lightning, transformers ─▶ TrainingProfile ─▶ a run, a verdict, and metrics in loggers
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Optional, Type, Union

from lstmprof.capture.own.session import profile, verdict_of

Metrics = Dict[str, float]


class TrainingProfile:
    """Measures a training for its callback, and computes metrics from the run."""

    def __init__(self, place: Union[str, Path], **options: Any) -> None:
        self.session = profile(place, **options)
        self._metrics: Optional[Metrics] = None
        self._writing: Optional[threading.Thread] = None

    def begin(self) -> None:
        if not self.session.steps and self.session.is_over and self.session.reason is None:
            self.session.begin()

    def step_end(self, *, follows: bool) -> Metrics:
        """End a step; return the run's metrics if lstmprof has just written the run."""
        if self.session.measured:
            if self._writing is None and not self.session.is_over:
                # write the run while the training continues
                self._writing = threading.Thread(target=self._write, name="lstmprof")
                self._writing.start()
        else:
            self.session.step_end()
            if follows:
                self.session.step_begin()
        return self._new()

    def end(self, error: Optional[Type[BaseException]] = None) -> Metrics:
        """Finish the run, and return the metrics that ``step_end`` did not return."""
        if self._writing is not None:
            self._writing.join()
        elif not self.session.is_over:
            self._write(error)
        return self._new()

    def _write(self, error: Optional[Type[BaseException]] = None) -> None:
        self.session.end(error)
        if self.session.path is not None:
            text = verdict_of([str(self.session.path)], self.session.writer, "--format", "json")
            self._metrics = metrics_of(json.loads(text)[0]) if text else {}

    def _new(self) -> Metrics:
        """Log new metrics to W&B and MLflow, and return the metrics."""
        metrics, self._metrics = self._metrics or {}, None
        # use only loggers that the user's process has already imported and started
        wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
        if metrics and getattr(wandb, "run", None) is not None:
            wandb.log(metrics)  # type: ignore[union-attr]
        if metrics and mlflow is not None and mlflow.active_run() is not None:
            mlflow.log_metrics(metrics)
        return metrics


def metrics_of(diagnosis: Dict[str, Any]) -> Metrics:
    """Return metrics for loggers, such as ``{"lstmprof/step_ms": 12.5}``."""
    step_ns = diagnosis["verdict"]["step_ns"]
    if not step_ns:
        return {}
    shares = {
        "lstmprof/{}_share".format(finding["kind"].replace(" ", "_")): float(finding["share"])
        for finding in diagnosis["findings"]
        if finding["share"] is not None
    }
    return dict({"lstmprof/step_ms": step_ns / 1e6}, **shares)
