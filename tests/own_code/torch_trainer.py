"""A small trainer class, as frameworks have: hooks, a closure, a loader that reads slowly."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    """Records that come from a slow disk."""

    def __len__(self):
        return 4096

    def __getitem__(self, number):
        time.sleep(0.001)
        lengths = 5 + number % 6
        return torch.ones(lengths, 8), number % 3


def padded(records):
    lengths = torch.tensor([len(series) for series, _ in records])
    series = nn.utils.rnn.pad_sequence([series for series, _ in records], batch_first=True)
    return series, lengths, torch.tensor([label for _, label in records])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 24, batch_first=True), nn.Linear(24, 3)

    def training_step(self, series, lengths, labels):
        packed = nn.utils.rnn.pack_padded_sequence(series, lengths, True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        return nn.functional.cross_entropy(self.head(last[-1]), labels)


class Trainer:
    def fit(self, model, loader, steps):
        optimizer = torch.optim.Adam(model.parameters())
        for number, batch in enumerate(loader):

            def closure(batch=batch):
                loss = model.training_step(*batch)
                optimizer.zero_grad()
                loss.backward()
                return loss

            optimizer.step(closure)
            if number + 1 == steps:
                return


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    Trainer().fit(Classifier(), DataLoader(Records(), batch_size=8, collate_fn=padded), count)
    print("trained")
