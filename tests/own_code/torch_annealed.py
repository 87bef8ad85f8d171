"""Predicts noisy series with a compiled model that counts its own steps to weaken the noise."""

import sys

import torch
from torch import nn

FEATURES, SIZE, BATCH, TIME = 6, 16, 8, 12


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(FEATURES, SIZE), nn.Linear(SIZE, FEATURES)
        self.steps = 0

    def forward(self, series, noise):
        self.steps += 1
        hidden = memory = series.new_zeros(series.shape[1], SIZE)
        outputs = []
        for values in (series + noise / self.steps).unbind(0):
            hidden, memory = self.cell(values, (hidden, memory))
            outputs.append(self.head(hidden))
        return torch.stack(outputs)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    torch.manual_seed(0)
    model, criterion = Denoiser(), nn.MSELoss()
    forward = torch.compile(model, backend="eager")  # no C++ compiler here
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for number in range(count):
        series = torch.randn(TIME, BATCH, FEATURES).cumsum(0)
        optimizer.zero_grad()
        loss = criterion(forward(series, torch.randn_like(series)), series)
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"step {number}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
