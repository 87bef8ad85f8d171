"""Labels series by a layer that a CPU runs op by op, or, with "fixed", by one that is one op.

The second argument names the layer: gru, float64, bfloat16 or projection.
"""

import sys

import torch
from torch import nn

LENGTH, BATCH, FEATURES, UNITS, LABELS = 50, 16, 24, 64, 5


class Labeller(nn.Module):
    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, LABELS)

    def forward(self, series):
        return self.head(self.layer(series)[0])


def built(kind, fixed):
    """Return the model, and the type of its inputs."""
    if kind == "gru":
        layer = (nn.LSTM if fixed else nn.GRU)(FEATURES, UNITS)
        return Labeller(layer, UNITS), torch.float32
    if kind == "projection":
        half = UNITS // 2
        layer = nn.LSTM(FEATURES, UNITS, proj_size=0 if fixed else half)
        model = Labeller(layer, half)
        if fixed:
            model.head = nn.Sequential(nn.Linear(UNITS, half), model.head)
        return model, torch.float32
    dtype = torch.float32 if fixed else getattr(torch, kind)
    return Labeller(nn.LSTM(FEATURES, UNITS), UNITS).to(dtype), dtype


def main():
    steps, kind = int(sys.argv[1]), sys.argv[2]
    torch.manual_seed(0)
    model, dtype = built(kind, "fixed" in sys.argv)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(steps):
        series = torch.randn(LENGTH, BATCH, FEATURES)
        labels = series.sum(-1).abs().long().clamp(max=LABELS - 1)
        scores = model(series.to(dtype))
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"step {number}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
