"""A character model in Haiku: an LSTM and its head, unrolled together over the text."""

import sys

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

CHARACTERS, SIZE, BATCH = 30, 24, 8


def unroll(characters):
    network = hk.DeepRNN(
        [lambda x: jax.nn.one_hot(x, CHARACTERS), hk.LSTM(SIZE), hk.Linear(CHARACTERS)]
    )
    scores, _ = hk.dynamic_unroll(network, characters, network.initial_state(BATCH))
    return scores


MODEL = hk.without_apply_rng(hk.transform(unroll))
OPTIMIZER = optax.adam(1e-3)


def loss_of(parameters, text):
    scores = MODEL.apply(parameters, text[:-1])
    return optax.softmax_cross_entropy_with_integer_labels(scores, text[1:]).mean()


@jax.jit
def update(parameters, state, text):
    gradients = jax.grad(loss_of)(parameters, text)
    updates, state = OPTIMIZER.update(gradients, state)
    return optax.apply_updates(parameters, updates), state


@jax.jit
def evaluate(parameters, text):
    return loss_of(parameters, text)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    generator = np.random.default_rng(0)
    parameters = MODEL.init(jax.random.PRNGKey(0), jnp.zeros((10, BATCH), jnp.int32))
    state = OPTIMIZER.init(parameters)
    for number in range(count):  # each batch has another length: compiled anew each time
        text = generator.integers(0, CHARACTERS, (10 + number, BATCH))
        parameters, state = update(parameters, state, text)
        if number % 10 == 0:
            print(f"step {number}: loss {float(evaluate(parameters, text)):.3f}", flush=True)


if __name__ == "__main__":
    main()
