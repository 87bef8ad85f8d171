"""Lines that build networks of JAX and its libraries."""

SCAN = """\
import jax
import jax.numpy as jnp

shapes = {"w": ($features, 4 * $hidden), "u": ($hidden, 4 * $hidden), "b": (4 * $hidden,)}
shapes["head"] = ($hidden, $classes)
keys = jax.random.split(jax.random.key(0), len(shapes))
parameters = {n: 0.05 * jax.random.normal(k, s) for (n, s), k in zip(shapes.items(), keys)}

def network(parameters, inputs):  # (time, batch, features); call it in a jitted step
    def cell(state, x):
        h, c = state
        gates = x @ parameters["w"] + h @ parameters["u"] + parameters["b"]
        i, f, g, o = jnp.split(gates, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((inputs.shape[1], $hidden))
    _, outputs = jax.lax.scan(cell, (zeros, zeros), inputs)
    return $seen @ parameters["head"]
"""
FLAX = """\
from flax import linen

class Network(linen.Module):
    @linen.compact
    def __call__(self, inputs):  # (batch, time, features)
        outputs = inputs
        for _ in range($layers):
            outputs = $flax_layer(outputs)
        return linen.Dense($classes, use_bias=False)($seen_batch_major)

network = Network()  # parameters = network.init(jax.random.key(0), inputs)
"""
EQUINOX = """\
import equinox
import jax
import jax.numpy as jnp

class Network(equinox.Module):
    cell: equinox.nn.LSTMCell
    head: equinox.nn.Linear

    def __init__(self, key):
        one, other = jax.random.split(key)
        self.cell = equinox.nn.LSTMCell($features, $hidden, key=one)
        self.head = equinox.nn.Linear($hidden, $classes, use_bias=False, key=other)

    def __call__(self, inputs):  # one sequence (time, features)
        def step(state, x):
            h, c = self.cell(x, state)
            return (h, c), h

        zeros = jnp.zeros($hidden)
        _, outputs = jax.lax.scan(step, (zeros, zeros), inputs)
        return $equinox_head

network = Network(jax.random.key(0))  # jax.vmap(network)(batch of inputs), under equinox.filter_jit
"""
HAIKU = """\
import haiku

def outputs_of(inputs):  # (time, batch, features)
    outputs = inputs
    for _ in range($layers):
        core = haiku.LSTM($hidden)
        outputs, _ = haiku.dynamic_unroll(core, outputs, core.initial_state(inputs.shape[1]))
    return haiku.Linear($classes, with_bias=False)($seen)

network = haiku.without_apply_rng(haiku.transform(outputs_of))
# parameters = network.init(jax.random.key(0), inputs); network.apply under jax.jit
"""
CUDNN = """\
import jax
import jax.numpy as jnp
from jax.experimental import rnn

count = rnn.get_num_params_in_lstm($features, $hidden, $layers, $bidirectional)
shapes = {"lstm": (count,), "head": ($width, $classes)}
keys = jax.random.split(jax.random.key(0), len(shapes))
parameters = {n: 0.05 * jax.random.normal(k, s) for (n, s), k in zip(shapes.items(), keys)}

def network(parameters, inputs):  # (batch, time, features), on an NVIDIA GPU; under jax.jit
    batch, time_steps = inputs.shape[:2]
    state = jnp.zeros(($layers * $directions, batch, $hidden))
    lengths = jnp.full(batch, time_steps, jnp.int32)
    outputs, _, _ = rnn.lstm(
        inputs, state, state, parameters["lstm"], lengths,
        $features, $hidden, $layers, 0.0, $bidirectional,
    )
    return $seen_batch_major @ parameters["head"]
"""
