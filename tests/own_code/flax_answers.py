"""A Flax encoder and decoder: learns to reverse numbers, and feeds its own guesses to itself."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

SYMBOLS, LENGTH, UNITS = 12, 8, 40


class GuessingCell(nn.RNNCellBase):
    """A cell whose next input is a symbol drawn from its output."""

    units: int

    @nn.compact
    def __call__(self, carry, _):
        state, symbol = carry
        state, output = nn.LSTMCell(self.units)(state, symbol)
        scores = nn.Dense(SYMBOLS)(output)
        drawn = jax.random.categorical(self.make_rng("draws"), scores)
        return (state, jax.nn.one_hot(drawn, SYMBOLS)), scores

    @property
    def num_feature_axes(self):
        return 1


class Reverser(nn.Module):
    @nn.compact
    def __call__(self, questions):
        encoder = nn.RNN(nn.LSTMCell(UNITS), return_carry=True, name="encoder")
        rngs = {"params": False, "draws": True}
        decoder = nn.RNN(GuessingCell(UNITS), split_rngs=rngs, name="decoder")
        state, _ = encoder(questions)
        return decoder(questions[:, 1:], initial_carry=(state, questions[:, 0]))


@jax.jit
def train_step(state, questions, key):
    key = jax.random.fold_in(key, state.step)

    def loss_of(parameters):
        scores = state.apply_fn({"params": parameters}, questions, rngs={"draws": key})
        answers = questions[:, :0:-1].argmax(-1)
        return optax.softmax_cross_entropy_with_integer_labels(scores, answers).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    key, generator = jax.random.key(0), np.random.default_rng(0)
    model = Reverser()
    rngs = {"params": key, "draws": key}
    parameters = model.init(rngs, jnp.zeros((1, LENGTH, SYMBOLS)))["params"]
    state = TrainState.create(apply_fn=model.apply, params=parameters, tx=optax.adam(3e-3))
    for number in range(count):
        numbers = generator.integers(0, SYMBOLS, (16, LENGTH))
        state, loss = train_step(state, np.eye(SYMBOLS, dtype=np.float32)[numbers], key)
        if number % 20 == 0:
            print(f"step {number}: loss {float(loss):.3f}", flush=True)


if __name__ == "__main__":
    main()
