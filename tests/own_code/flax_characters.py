"""A character model in Flax: predicts the next character of a text, one LSTM, plain training."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

TEXT = "the quick brown fox jumps over the lazy dog and the dog sleeps on. " * 60
CHARACTERS = sorted(set(TEXT))


class CharacterModel(nn.Module):
    size: int

    @nn.compact
    def __call__(self, characters):
        vectors = nn.Embed(len(CHARACTERS), self.size // 2)(characters)
        cell = nn.OptimizedLSTMCell(self.size)
        state = cell.initialize_carry(jax.random.PRNGKey(0), vectors[:, 0].shape)
        outputs = []
        for time in range(vectors.shape[1]):
            state, output = cell(state, vectors[:, time])
            outputs.append(output)
        return nn.Dense(len(CHARACTERS))(jnp.stack(outputs, 1))


def batches(count, batch, length):
    generator = np.random.default_rng(0)
    numbers = np.array([CHARACTERS.index(character) for character in TEXT])
    for _ in range(count):
        starts = generator.integers(0, len(numbers) - length - 1, batch)
        windows = np.stack([numbers[start : start + length + 1] for start in starts])
        yield windows[:, :-1], windows[:, 1:]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    model = CharacterModel(48)
    optimizer = optax.adam(3e-3)
    parameters = model.init(jax.random.PRNGKey(1), jnp.zeros((1, 6), jnp.int32))
    state = optimizer.init(parameters)

    def loss_of(parameters, inputs, targets):
        scores = model.apply(parameters, inputs)
        return optax.softmax_cross_entropy_with_integer_labels(scores, targets).mean()

    def train_step(parameters, state, inputs, targets):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs, targets)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(parameters, updates), state, loss

    for number, (inputs, targets) in enumerate(batches(count, 8, 6)):
        parameters, state, loss = train_step(parameters, state, inputs, targets)
        if number % 5 == 0:
            print(f"step {number}: loss {float(loss):.3f}", flush=True)


if __name__ == "__main__":
    main()
