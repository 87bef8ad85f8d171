"""An LSTM of your own for `lstmprof capture --impl mymodel.py:build`, in PyTorch.

Replace Network by your module. lstmprof provides data, loss, optimizer and the loop, the same for
all implementations. It calls the module with inputs, and compares the outputs.
"""

import torch

#: Inputs and outputs are (time, batch, …). Delete this line if yours are (batch, time, …).
TIME_MAJOR = True


class Network(torch.nn.Module):
    def __init__(self, workload):
        super().__init__()
        self.every_step = workload.every_step  # outputs of every time step, or of the last one
        self.lstm = torch.nn.LSTM(
            workload.features,
            workload.hidden,
            workload.layers,
            bidirectional=workload.bidirectional,
        )
        width = workload.directions * workload.hidden
        self.head = torch.nn.Linear(width, workload.classes, bias=False)

    def forward(self, inputs):
        """Map (time, batch, features) to (batch, classes), or to (time, batch, classes)."""
        outputs, _ = self.lstm(inputs)
        return self.head(outputs if self.every_step else outputs[-1])


def build(workload):
    """Return the network; `lstmprof list workloads` describes workloads."""
    return Network(workload)


def load(network, weights):
    """Copy the weights into the network, so that lstmprof can check results before timing.

    The weights have PyTorch's names and layout: weight_ih_l0 (4·hidden, inputs), weight_hh_l0
    (4·hidden, hidden), bias_l0, … with gates in the order i f g o, and head (classes, hidden).
    Delete this function if your network does not compute the workload's LSTM.
    """
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "bias_hh" in name:  # PyTorch's second bias
                parameter.zero_()
            else:
                shared = name.replace("lstm.", "").replace("bias_ih", "bias")
                shared = shared.replace("head.weight", "head")
                parameter.copy_(torch.from_numpy(weights[shared]))
