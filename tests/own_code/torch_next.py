"""Predicts the next value of noisy waves; with "fixed", the LSTM gets each series in one call."""

import sys

import torch
from torch import nn

LENGTH, BATCH, UNITS = 50, 16, 48


class Predictor(nn.Module):
    def __init__(self, at_once):
        super().__init__()
        self.at_once = at_once
        self.lstm, self.head = nn.LSTM(1, UNITS), nn.Linear(UNITS, 1)

    def forward(self, series):
        if self.at_once:
            outputs, _ = self.lstm(series)
            return self.head(outputs)
        state, outputs = None, []
        for values in series:  # one call of the layer per time step
            output, state = self.lstm(values[None], state)
            outputs.append(output)
        return self.head(torch.cat(outputs))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.manual_seed(0)
    model = Predictor("fixed" in sys.argv)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    times = torch.arange(LENGTH + 1)[:, None, None]
    for number in range(steps):
        waves = torch.sin(0.3 * times + 6 * torch.rand(1, BATCH, 1)) + 0.1 * torch.randn(
            LENGTH + 1, BATCH, 1
        )
        loss = nn.functional.mse_loss(model(waves[:-1]), waves[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"step {number}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
