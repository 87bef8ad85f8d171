"""Code that builds TensorFlow's networks; call the network in a tf.function."""

_IMPORT = "import tensorflow as tf\n\n"
_CALLED = "\nnetwork = Network()  # in a tf.function, with its gradient\n"
_WEIGHTS = """\
        shape = [$features + $hidden, 4 * $hidden]
        self.kernel = tf.Variable(tf.random.uniform(shape, -0.05, 0.05))  # gates i c f o
        self.bias = tf.Variable(tf.zeros([4 * $hidden]))
"""
_HEAD = """\
        self.head = tf.Variable(tf.random.uniform([$width, $classes], -0.05, 0.05))
"""
_NETWORK = f"""\
class Network(tf.Module):
    def __init__(self):
{_WEIGHTS}{_HEAD}
    def __call__(self, inputs):  # (time, batch, features)
"""
#: The loop around a cell that is called with x, h and c.
_LOOP = """\
        start = 0, zeros, zeros, tf.TensorArray(tf.float32, $time_steps)
        _, h, _, outputs = tf.while_loop(lambda t, *_: t < $time_steps, step, start)
        return tf.tensordot($tf_stacked, self.head, 1)
"""

WHILE_LOOP = f"""\
{_IMPORT}{_NETWORK}\
        x = tf.TensorArray(tf.float32, $time_steps).unstack(inputs)
        zeros = tf.zeros([inputs.shape[1], $hidden])

        def step(t, h, c, outputs):
            gates = tf.concat([x.read(t), h], 1) @ self.kernel + self.bias
            i, j, f, o = tf.split(gates, 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
            h = tf.sigmoid(o) * tf.tanh(c)
            return t + 1, h, c, outputs.write(t, h)

{_LOOP}{_CALLED}"""

DYNAMIC_RNN = f"""\
{_IMPORT}\
class Cell(tf.Module):  # BasicLSTMCell, whose class is in the package tf-keras by now
    output_size, state_size, get_initial_state = $hidden, ($hidden, $hidden), None

    def __init__(self):
{_WEIGHTS}
    def zero_state(self, batch, dtype):
        return tf.zeros([batch, $hidden], dtype), tf.zeros([batch, $hidden], dtype)

    def __call__(self, x, state):
        c, h = state
        i, j, f, o = tf.split(tf.concat([x, h], 1) @ self.kernel + self.bias, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        return h, (c, h)

class Network(tf.Module):
    def __init__(self):
        self.cell = Cell()
{_HEAD}
    def __call__(self, inputs):  # (time, batch, features)
        outputs, _ = tf.compat.v1.nn.dynamic_rnn(
            self.cell, inputs, dtype=tf.float32, time_major=True
        )
        return tf.tensordot($seen, self.head, 1)
{_CALLED}"""

BLOCK_CELL = f"""\
{_IMPORT}\
@tf.custom_gradient  # TensorFlow 2 registers no gradient of LSTMBlockCell
def cell(x, h, c, kernel, bias):
    given = {{"x": x, "h_prev": h, "cs_prev": c, "w": kernel, "b": bias, "use_peephole": False}}
    given.update(dict.fromkeys(("wci", "wcf", "wco"), tf.zeros([$hidden])))
    block = tf.raw_ops.LSTMBlockCell(forget_bias=0.0, cell_clip=-1.0, **given)

    def gradients(h_grad, c_grad):
        kept = {{name: getattr(block, name) for name in ("i", "cs", "f", "o", "ci", "co")}}
        found = tf.raw_ops.LSTMBlockCellGrad(cs_grad=c_grad, h_grad=h_grad, **kept, **given)
        both = tf.matmul(found.dicfo, kernel, transpose_b=True)
        x_grad, h_before = tf.split(both, [x.shape[1], $hidden], 1)
        kernel_grad = tf.matmul(tf.concat([x, h], 1), found.dicfo, transpose_a=True)
        return x_grad, h_before, found.cs_prev_grad, kernel_grad, tf.reduce_sum(found.dicfo, 0)

    return (block.h, block.cs), gradients

{_NETWORK}\
        x = tf.TensorArray(tf.float32, $time_steps).unstack(inputs)
        zeros = tf.zeros([inputs.shape[1], $hidden])
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)

        def step(t, h, c, outputs):
            h, c = cell(x.read(t), h, c, kernel, bias)
            return t + 1, h, c, outputs.write(t, h)

{_LOOP}{_CALLED}"""

BLOCK_LAYER = f"""\
{_IMPORT}{_NETWORK}\
        state, peephole = tf.zeros([inputs.shape[1], $hidden]), tf.zeros([$hidden])
        outputs = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.constant($time_steps, tf.int64), x=inputs, cs_prev=state, h_prev=state,
            w=self.kernel, wci=peephole, wcf=peephole, wco=peephole, b=self.bias,
            forget_bias=0.0, cell_clip=-1.0,
        ).h
        return tf.tensordot($seen, self.head, 1)
{_CALLED}"""

CUDNN_LAYER = f"""\
{_IMPORT}\
class Network(tf.Module):
    def __init__(self):
        weights = tf.random.uniform([$cudnn_size], -0.05, 0.05)  # all of them, as cuDNN wants it
        self.weights = tf.Variable(weights)
{_HEAD}
    def __call__(self, inputs):  # (time, batch, features), on an NVIDIA GPU
        state = tf.zeros([$layers * $directions, inputs.shape[1], $hidden])
        outputs = tf.raw_ops.CudnnRNNV3(
            input=inputs, input_h=state, input_c=state, params=tf.convert_to_tensor(self.weights),
            sequence_lengths=tf.fill([inputs.shape[1]], $time_steps), rnn_mode="lstm",
            direction="$direction", is_training=True, time_major=True,
        ).output
        return tf.tensordot($seen, self.head, 1)
{_CALLED}"""
