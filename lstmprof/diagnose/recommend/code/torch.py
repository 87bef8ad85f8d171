"""Lines that build PyTorch's networks."""

_LAYER = """\
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.$cell($features, $hidden, $layers, bidirectional=$bidirectional)
        self.head = $torch_head

    def forward(self, inputs):  # (time, batch, features)
        outputs, _ = self.lstm(inputs)
        return self.head($seen)

"""
LAYER = _LAYER + "network = Network()\n"
COMPILED_LAYER = _LAYER + "network = torch.compile(Network())\n"
EXPORTED_LAYER = (
    _LAYER
    + """\
inputs = torch.zeros($time_steps, $batch, $features)
with torch.no_grad():
    exported = torch.export.export(Network().eval(), (inputs,))
    package = torch._inductor.aoti_compile_and_package(exported)
network = torch._inductor.aoti_load_package(package)  # forward alone, for inputs of this shape
"""
)
CELL = """\
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell($features, $hidden)
        self.head = $torch_head

    def forward(self, inputs):  # (time, batch, features)
        h = c = inputs.new_zeros(inputs.shape[1], $hidden)
        outputs = []
        for x in inputs.unbind(0):  # not inputs[t], whose gradient fills zeros at every step
            h, c = self.cell(x, (h, c))
            outputs.append(h)
        return self.head($stacked)

network = Network()
"""
_BY_HAND = """\
def cell(x, h, c, w, u, b):
    i, f, g, o = (x @ w + h @ u + b).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        shapes = ($features, 4 * $hidden), ($hidden, 4 * $hidden), (4 * $hidden,)
        drawn = [torch.nn.Parameter(torch.empty(s).uniform_(-0.05, 0.05)) for s in shapes]
        self.weights = torch.nn.ParameterList(drawn)
        self.head = $torch_head

    def forward(self, inputs):  # (time, batch, features)
        h = c = inputs.new_zeros(inputs.shape[1], $hidden)
        outputs = []
        for x in inputs.unbind(0):
            h, c = cell(x, h, c, *self.weights)
            outputs.append(h)
        return self.head($stacked)

network = Network()
"""
BY_HAND = "import torch\n\n" + _BY_HAND
SCRIPTED = "import torch\n\n@torch.jit.script\n" + _BY_HAND
COMPILED_CELL = "import torch\n\n@torch.compile\n" + _BY_HAND
