"""Forecasts series in Flax NNX: modules with state, and an optimizer that updates the model."""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Forecaster(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.RNN(nnx.OptimizedLSTMCell(6, 20, rngs=rngs))
        self.head = nnx.Linear(20, 6, rngs=rngs)

    def __call__(self, series):
        return self.head(self.layer(series)[:, -1])


def loss_of(model, series, following):
    return ((model(series) - following) ** 2).mean()


@nnx.jit
def train_step(model, optimizer, series, following):
    loss, gradients = nnx.value_and_grad(loss_of)(model, series, following)
    optimizer.update(model, gradients)
    return loss


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    model = Forecaster(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    for number in range(count):  # each batch is longer than the last: compiled anew each time
        noise = jax.random.normal(jax.random.PRNGKey(number), (8, 9 + number, 6))
        series = jnp.cumsum(noise, 1)
        loss = train_step(model, optimizer, series[:, :-1], series[:, -1])
        if number % 10 == 0:
            print(f"step {number}: loss {float(loss):.3f}", flush=True)


if __name__ == "__main__":
    main()
