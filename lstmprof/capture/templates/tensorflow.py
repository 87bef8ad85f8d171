"""An LSTM of your own for `lstmprof capture --impl mymodel.py:build`, in TensorFlow.

Replace Network by your module. lstmprof provides data, loss, optimizer and the loop (one
tf.function per step), the same for all implementations, and calls the module with inputs. This
example has a single layer and direction.
"""

import tensorflow as tf

#: Inputs and outputs are (time, batch, …). Delete this line if yours are (batch, time, …).
TIME_MAJOR = True


class Network(tf.Module):
    def __init__(self, workload):
        super().__init__()
        self.every_step = workload.every_step  # outputs of every time step, or of the last one
        self.hidden = workload.hidden
        gates = 4 * workload.hidden
        self.kernel = tf.Variable(tf.zeros([workload.features + workload.hidden, gates]))
        self.bias = tf.Variable(tf.zeros([gates]))
        self.head = tf.Variable(tf.zeros([workload.hidden, workload.classes]))

    def cell(self, state, x):
        h, c = state
        gates = tf.matmul(tf.concat([x, h], 1), self.kernel) + self.bias
        i, f, g, o = tf.split(gates, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c

    def __call__(self, inputs):
        """Map (time, batch, features) to (batch, classes), or to (time, batch, classes)."""
        zeros = tf.zeros([inputs.shape[1], self.hidden])
        outputs, _ = tf.scan(self.cell, inputs, (zeros, zeros))
        return tf.tensordot(outputs if self.every_step else outputs[-1], self.head, 1)


def build(workload):
    """Return the network; `lstmprof list workloads` describes workloads."""
    if workload.layers > 1 or workload.bidirectional:
        raise ValueError("this network has one layer and one direction")
    return Network(workload)


def load(network, weights):
    """Copy the weights into the network, so that lstmprof can check results before timing.

    The weights have PyTorch's names and layout: weight_ih_l0 (4·hidden, inputs), weight_hh_l0
    (4·hidden, hidden), bias_l0 with gates in the order i f g o, and head (classes, hidden). Delete
    this function if your network does not compute the workload's LSTM.
    """
    both = [weights["weight_ih_l0"].T, weights["weight_hh_l0"].T]
    network.kernel.assign(tf.concat(both, 0))
    network.bias.assign(weights["bias_l0"])
    network.head.assign(weights["head"].T)
