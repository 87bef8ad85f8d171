"""Labels series of growing lengths with a compiled LSTM cell; each batch is compiled anew."""

import sys

import torch
from torch import nn

FEATURES, SIZE, BATCH = 6, 16, 8
torch._dynamo.config.recompile_limit = 1000  # it warned otherwise


class Labeller(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(FEATURES, SIZE), nn.Linear(SIZE, 2)

    def forward(self, series):
        states, scores = None, []
        for values in series.unbind(0):
            states = self.cell(values, states)
            scores.append(self.head(states[0]))
        return torch.stack(scores)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.manual_seed(0)
    model, criterion = Labeller(), nn.CrossEntropyLoss()
    forward = torch.compile(model, dynamic=False, backend="eager")  # no C++ compiler here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(count):
        series = torch.randn(3 + number, BATCH, FEATURES)
        labels = (series.cumsum(0).sum(2) > 0).long()
        optimizer.zero_grad()
        loss = criterion(forward(series).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"step {number}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
