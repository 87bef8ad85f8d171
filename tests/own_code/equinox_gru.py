"""A GRU in Equinox that tells two kinds of spirals apart; updates by equinox.apply_updates."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Spirals(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, size, key):
        first, second = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(2, size, key=first)
        self.head = eqx.nn.Linear(size, 1, key=second)

    def __call__(self, points):
        def step(state, point):
            return self.cell(point, state), None

        state, _ = jax.lax.scan(step, jnp.zeros(self.cell.hidden_size), points)
        return self.head(state)[0]


def loss_of(model, points, labels):
    return optax.sigmoid_binary_cross_entropy(jax.vmap(model)(points), labels).mean()


@eqx.filter_jit
def gradients_of(model, points, labels):
    return eqx.filter_value_and_grad(loss_of)(model, points, labels)


def batch(key, size, length):
    labels = jax.random.bernoulli(key, shape=(size,)).astype(jnp.float32)
    turns = jnp.linspace(0, 6, length) * (2 * labels[:, None] - 1)
    return jnp.stack([jnp.cos(turns), jnp.sin(turns)], -1), labels


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    model, optimizer = Spirals(20, jax.random.PRNGKey(0)), optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_array))
    for number in range(count):
        points, labels = batch(jax.random.PRNGKey(number), 8, 12)
        loss, gradients = gradients_of(model, points, labels)
        updates, state = optimizer.update(gradients, state)
        model = eqx.apply_updates(model, updates)
        if number % 10 == 0:
            print(f"step {number}: loss {float(loss):.3f}")


if __name__ == "__main__":
    main()
