"""The losses in JAX, on outputs (batch, classes), or one a time step.

CTC is the sum over all alignments, in log space, as a scan over time; its gradient is the scan's.
Source: A. Graves et al., "Connectionist temporal classification" (2006), equations 6–8. JAX has no
CTC of its own: optax's is the same recursion with another treatment of padding.
"""

from __future__ import annotations

from typing import Any, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from lstmprof.workloads import Workload

#: log 0: finite, because the gradient of logaddexp(-inf, -inf) is no number
LOG_ZERO = -1e30


def loss_of(workload: Workload, outputs: Any, targets: Tuple[Any, ...], time_major: bool) -> Any:
    """The mean loss over the batch.

    ``targets`` from ``targets_of``. CTC: blank 0, mean over sequences of the negative
    log-likelihood.
    """
    if workload.loss == "mean":
        return jnp.mean(outputs)
    if workload.loss == "mse":
        return jnp.mean(jnp.square(outputs - targets[0]))
    scores = jax.nn.log_softmax(outputs)
    if workload.loss == "ce":
        return -jnp.mean(jnp.take_along_axis(scores, targets[0][..., None], axis=-1))
    return -jnp.mean(_log_likelihoods(scores if time_major else scores.swapaxes(0, 1), *targets))


def _log_likelihoods(scores: Any, labels: Any, lengths: Any) -> Any:
    """log p(labels) of each sequence (batch,); ``scores`` (time, batch, classes)."""
    batch, symbols = labels.shape[0], 2 * labels.shape[1] + 1
    spelled = jnp.zeros((batch, symbols), labels.dtype).at[:, 1::2].set(labels)
    skips = (spelled[:, 2:] != 0) & (spelled[:, 2:] != spelled[:, :-2])
    may_skip = jnp.pad(skips, ((0, 0), (2, 0)))
    emitted = jnp.take_along_axis(scores, spelled[None], axis=2)
    start = jnp.where(jnp.arange(symbols) < 2, emitted[0], LOG_ZERO)

    def forward(sums: Any, step: Tuple[Any, Any]) -> Tuple[Any, None]:
        t, own = step
        two = jnp.where(may_skip, _shifted(sums, 2), LOG_ZERO)
        reached = own + jnp.logaddexp(jnp.logaddexp(sums, _shifted(sums, 1)), two)
        return jnp.where((t < lengths)[:, None], reached, sums), None

    times = jnp.arange(1, scores.shape[0])
    sums, _ = jax.lax.scan(forward, start, (times, emitted[1:]))
    return jnp.logaddexp(sums[:, -1], sums[:, -2])


def _shifted(sums: Any, places: int) -> Any:
    """What stood ``places`` symbols before."""
    return jnp.pad(sums[:, :-places], ((0, 0), (places, 0)), constant_values=LOG_ZERO)


def targets_of(workload: Workload, batch: Any, time_major: bool) -> Tuple[Any, ...]:
    """What the loss compares with: NumPy, in 32 bits, time where the outputs have it.

    Classes or values; for CTC labels (batch, labels) and lengths (batch,); for ``mean`` nothing.
    """
    if workload.loss == "mean":
        return ()
    if workload.loss == "ctc":
        return batch.targets.astype(np.int32), batch.lengths.astype(np.int32)
    targets = batch.targets.astype(np.float32 if workload.loss == "mse" else np.int32)
    if workload.each_step and not time_major:
        targets = np.ascontiguousarray(targets.swapaxes(0, 1))
    return (targets,)
