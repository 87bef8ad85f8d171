"""Rates texts of a large vocabulary; with "fixed", the gradient of the word vectors is sparse."""

import sys

import torch
from torch import nn

WORDS, LENGTH, BATCH, UNITS = 60_000, 20, 8, 32


class Rater(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.words = nn.Embedding(WORDS, UNITS, sparse=sparse)
        self.lstm, self.head = nn.LSTM(UNITS, UNITS), nn.Linear(UNITS, 1)

    def forward(self, texts):
        outputs, _ = self.lstm(self.words(texts))
        return self.head(outputs[-1])[:, 0]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    sparse = "fixed" in sys.argv
    torch.manual_seed(0)
    model = Rater(sparse)
    others = [w for name, w in model.named_parameters() if name != "words.weight"]
    of_words = torch.optim.SparseAdam if sparse else torch.optim.Adam
    optimizers = [of_words([model.words.weight], lr=0.01), torch.optim.Adam(others, lr=0.01)]
    for number in range(steps):
        texts = torch.randint(WORDS, (LENGTH, BATCH))
        wanted = (texts % 2).float().mean(0)
        loss = nn.functional.mse_loss(model(texts), wanted)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if number % 10 == 0:
            print(f"step {number}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
