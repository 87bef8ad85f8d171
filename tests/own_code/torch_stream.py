"""Follows one long series, whose state goes on from batch to batch; "fixed" detaches the state."""

import sys

import torch
from torch import nn

LENGTH, BATCH, UNITS = 20, 8, 32


class Follower(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, UNITS), nn.Linear(UNITS, 1)

    def forward(self, series, state):
        outputs, state = self.lstm(series, state)
        return self.head(outputs), state


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.manual_seed(0)
    model, state = Follower(), None
    times = torch.arange(steps * LENGTH + 1)[:, None, None]
    waves = torch.sin(0.3 * times + torch.rand(1, BATCH, 1))
    for number in range(steps):
        now = waves[number * LENGTH : (number + 1) * LENGTH + 1]
        guesses, state = model(now[:-1], state)
        if "fixed" in sys.argv:
            state = tuple(part.detach() for part in state)
        loss = nn.functional.mse_loss(guesses, now[1:])
        model.zero_grad()
        loss.backward(retain_graph=True)
        for weight in model.parameters():
            weight.data.add_(weight.grad, alpha=-0.01)
        if number % 10 == 0:
            print(f"step {number}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
