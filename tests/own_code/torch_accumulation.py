"""A regressor whose gradients are added up over four small batches before each step."""

import sys

import torch
from torch import nn

PARTS = 4


class Regressor(nn.Module):
    def __init__(self, inputs, size):
        super().__init__()
        self.gru = nn.GRU(inputs, size, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * size, 1)

    def forward(self, series):
        outputs, _ = self.gru(series)
        return self.head(outputs[:, -1])


def batches(count):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        series = torch.randn(4, 6, 5, generator=generator)
        yield series, series.mean((1, 2)).unsqueeze(1)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.autograd.set_detect_anomaly(True)  # left over from a search for a NaN
    model = Regressor(5, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for number, (series, targets) in enumerate(batches(PARTS * count)):
        loss = nn.functional.mse_loss(model(series), targets) / PARTS
        loss.backward()
        if (number + 1) % PARTS == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
