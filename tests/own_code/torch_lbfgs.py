"""Fits sine waves with LBFGS: each step evaluates a closure several times."""

import sys

import torch
from torch import nn


class Waves(nn.Module):
    """Two cells, one over the other, called once per time step."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.lower, self.upper = nn.LSTMCell(1, size), nn.LSTMCell(size, size)
        self.head = nn.Linear(size, 1)

    def forward(self, waves):
        states = [torch.zeros(len(waves), self.size) for _ in range(4)]
        outputs = []
        for value in waves.split(1, dim=1):
            states[:2] = self.lower(value, tuple(states[:2]))
            states[2:] = self.upper(states[0], tuple(states[2:]))
            outputs.append(self.head(states[2]))
        return torch.cat(outputs, 1)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    torch.manual_seed(0)
    times = torch.arange(20) + 20 * torch.rand(6, 1)
    waves = torch.sin(times / 6)
    model, criterion = Waves(16), nn.MSELoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    for step in range(count):

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(waves[:, :-1]), waves[:, 1:])
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        with torch.no_grad():  # how well does it predict?
            error = criterion(model(waves[:, :-1]), waves[:, 1:])
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}, error {error.item():.4f}")


if __name__ == "__main__":
    main()
