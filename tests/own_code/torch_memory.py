"""An mLSTM with a matrix as memory (arXiv:2405.04517); "fixed" computes all time steps at once."""

import sys

import torch
from torch import nn

LENGTH, BATCH, UNITS = 64, 4, 16


class MLSTMCell(nn.Module):
    def __init__(self, at_once):
        super().__init__()
        self.at_once = at_once

    def forward(self, q, k, v, i, f):
        if self.at_once:
            decay = f.cumsum(1)
            gates = (decay - decay.transpose(1, 2) + i.transpose(1, 2)).exp().tril()
            scores = (q @ k.transpose(1, 2)) * gates
            return scores @ v / scores.sum(2, keepdim=True).abs().clamp(min=1)
        memory, norm, outputs = q.new_zeros(BATCH, UNITS, UNITS), q.new_zeros(BATCH, UNITS), []
        for t in range(LENGTH):
            keep, write = f[:, t].exp(), i[:, t].exp()
            memory = keep[..., None] * memory + write[..., None] * k[:, t, :, None] * v[:, t, None]
            norm = keep * norm + write * k[:, t]
            size = (norm * q[:, t]).sum(1, keepdim=True).abs().clamp(min=1)
            outputs.append((q[:, t, None] @ memory)[:, 0] / size)
        return torch.stack(outputs, 1)


class Block(nn.Module):
    def __init__(self, at_once):
        super().__init__()
        self.project, self.gates = nn.Linear(UNITS, 3 * UNITS), nn.Linear(UNITS, 2)
        self.cell, self.head = MLSTMCell(at_once), nn.Linear(UNITS, UNITS)

    def forward(self, x):
        i, f = self.gates(x).chunk(2, -1)
        return self.head(self.cell(*self.project(x).chunk(3, -1), i, nn.functional.logsigmoid(f)))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.manual_seed(0)
    model = Block("fixed" in sys.argv)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(steps):
        series = torch.randn(BATCH, LENGTH, UNITS)
        loss = nn.functional.mse_loss(model(series), series.cumsum(1) / LENGTH)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"step {number}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
