"""Sums numbers with an LSTM in the Trainer of Hugging Face's Transformers."""

import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Numbers(Dataset):
    def __init__(self, count):
        self.series = torch.rand(count, 12, 6, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.series)

    def __getitem__(self, number):
        return {"series": self.series[number], "labels": self.series[number].sum()}


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 20), nn.Linear(20, 1)

    def forward(self, series, labels):
        state = None
        for values in series.unbind(1):  # one call of the layer per time step
            output, state = self.lstm(values[None], state)
        guesses = self.head(output[0])[:, 0]
        return {"loss": nn.functional.mse_loss(guesses, labels), "logits": guesses}


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as folder:
        options = {"use_cpu": True, "report_to": [], "logging_steps": 10, "num_train_epochs": 1}
        arguments = TrainingArguments(folder, per_device_train_batch_size=8, **options)
        Trainer(Adder(), arguments, train_dataset=Numbers(8 * count)).train()


if __name__ == "__main__":
    main()
