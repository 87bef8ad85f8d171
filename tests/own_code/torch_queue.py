"""Trains an LSTM in PyTorch; another thread reads a batch every 20 ms and keeps some ready."""

import queue
import sys
import threading
import time

import torch
from torch import nn

BATCH, TIME, FEATURES = 8, 30, 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, 16)
        self.head = nn.Linear(16, 1)

    def forward(self, series):
        return self.head(self.lstm(series)[0][-1])


def read(batches):
    generator = torch.Generator().manual_seed(0)
    while True:
        time.sleep(0.02)  # reads a file
        batches.put(torch.randn(TIME, BATCH, FEATURES, generator=generator))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so that no thread waits for another one
    batches = queue.Queue(maxsize=4)
    threading.Thread(target=read, args=(batches,), daemon=True).start()
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
        series = batches.get()
        optimizer.zero_grad()
        loss = ((model(series) - series.sum((0, 2))[:, None]) ** 2).mean()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"step {number}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
