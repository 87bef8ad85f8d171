"""Classifies records in a loop of one's own with Accelerate, which accumulates two batches."""

import sys
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    """Records that come from a slow disk."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        time.sleep(0.001)
        return torch.full((10, 8), float(number % 3)), number % 3


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 24, batch_first=True), nn.Linear(24, 3)

    def forward(self, series):
        return self.head(self.lstm(series)[0][:, -1])


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Records(16 * count), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for series, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(series), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
