"""A GRU in Haiku that sums series; nothing is compiled with jax.jit."""

import sys

import haiku as hk
import jax
import jax.numpy as jnp
import optax

BATCH, TIME, FEATURES = 8, 9, 5


def predict(series):
    core = hk.GRU(16)
    _, state = hk.dynamic_unroll(core, series, core.initial_state(BATCH))
    return hk.Linear(1)(state)


MODEL = hk.without_apply_rng(hk.transform(predict))
OPTIMIZER = optax.sgd(1e-2)


def loss_of(parameters, series):
    return ((MODEL.apply(parameters, series)[:, 0] - series.sum((0, 2))) ** 2).mean()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    key = jax.random.PRNGKey(0)
    parameters = MODEL.init(key, jnp.zeros((TIME, BATCH, FEATURES)))
    state = OPTIMIZER.init(parameters)
    for number in range(count):
        series = jax.random.normal(jax.random.fold_in(key, number), (TIME, BATCH, FEATURES))
        loss, gradients = jax.value_and_grad(loss_of)(parameters, series)
        updates, state = OPTIMIZER.update(gradients, state)
        parameters = optax.apply_updates(parameters, updates)
        if number % 10 == 0:
            print(f"step {number}: loss {float(loss):.3f}")


if __name__ == "__main__":
    main()
