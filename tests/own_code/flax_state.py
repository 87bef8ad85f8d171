"""A Flax regressor whose TrainState applies the gradients; a step function made anew each time."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState


class Regressor(nn.Module):
    @nn.compact
    def __call__(self, series):
        outputs = nn.RNN(nn.OptimizedLSTMCell(20))(series)
        return nn.Dense(1)(outputs[:, -1])


def step_of(rate):
    """The step for a learning rate."""

    @jax.jit
    def train_step(state, series):
        def loss_of(parameters):
            guesses = state.apply_fn(parameters, series)
            return ((guesses[:, 0] - series.sum((1, 2))) ** 2).mean()

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        scaled = jax.tree_util.tree_map(lambda gradient: rate * gradient, gradients)
        return state.apply_gradients(grads=scaled), loss

    return train_step


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    model, key = Regressor(), jax.random.PRNGKey(0)
    parameters = model.init(key, jnp.zeros((1, 10, 6)))
    state = TrainState.create(apply_fn=model.apply, params=parameters, tx=optax.adam(1e-2))
    for number in range(count):
        series = jax.random.normal(jax.random.PRNGKey(number), (8, 10, 6))
        state, loss = step_of(1.0 / (1 + number))(state, series)
        if number % 10 == 0:
            print(f"step {number}: loss {float(loss):.3f}", flush=True)


if __name__ == "__main__":
    main()
