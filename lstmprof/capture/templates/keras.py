"""An LSTM of your own for `lstmprof capture --impl mymodel.py:build`, in Keras.

Replace these layers by yours. lstmprof provides data, loss, optimizer and the loop, the same for
all implementations, and calls the model with inputs (batch, time, features).
"""

import keras

#: Framework whose loop trains the model: "tensorflow" or "torch". For JAX, write build as in
#: `lstmprof list --template jax`, with a function that calls model.stateless_call.
FRAMEWORK = "tensorflow"


def build(workload):
    """Return the model; outputs are (batch, classes), or (batch, time, classes) for every step."""
    layers = [keras.layers.Input((workload.time_steps, workload.features))]
    for number in range(workload.layers):
        every_step = workload.every_step or number < workload.layers - 1
        lstm = keras.layers.LSTM(workload.hidden, return_sequences=every_step)
        layers.append(keras.layers.Bidirectional(lstm) if workload.bidirectional else lstm)
    return keras.Sequential([*layers, keras.layers.Dense(workload.classes, use_bias=False)])


def load(model, weights):
    """Copy the weights into the model, so that lstmprof can check results before timing.

    The weights have PyTorch's names and layout: weight_ih_l0 (4·hidden, inputs), weight_hh_l0
    (4·hidden, hidden), bias_l0, … with gates in the order i f g o, which is also Keras's, and head
    (classes, hidden). Delete this function if your model does not compute the workload's LSTM.
    """
    *lstms, head = model.layers
    for number, layer in enumerate(lstms):
        two = isinstance(layer, keras.layers.Bidirectional)
        layers = (layer.forward_layer, layer.backward_layer) if two else (layer,)
        for lstm, suffix in zip(layers, ("", "_reverse")):
            slot = "l{}{}".format(number, suffix)
            lstm.cell.kernel.assign(weights["weight_ih_" + slot].T)
            lstm.cell.recurrent_kernel.assign(weights["weight_hh_" + slot].T)
            lstm.cell.bias.assign(weights["bias_" + slot])
    head.kernel.assign(weights["head"].T)
