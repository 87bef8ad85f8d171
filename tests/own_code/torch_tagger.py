"""A part-of-speech tagger: an LSTM over words, trained on sentences that it makes up."""

import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, TAGS = 500, 12


class Sentences(Dataset):
    """Words whose tag is their number modulo the number of tags, unless a 0 stands before them."""

    def __init__(self, count, length):
        generator = random.Random(0)
        self.words = [[generator.randrange(WORDS) for _ in range(length)] for _ in range(count)]

    def __len__(self):
        return len(self.words)

    def __getitem__(self, number):
        words = self.words[number]
        tags = [
            word % TAGS if not before else (word + before) % TAGS
            for before, word in zip([0, *words[:-1]], words, strict=True)
        ]
        return torch.tensor(words), torch.tensor(tags)


class Tagger(nn.Module):
    """Embedding, LSTM, one score a tag."""

    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.scores = nn.Linear(size, TAGS)

    def forward(self, words):
        outputs, _ = self.lstm(self.embedding(words))
        return self.scores(outputs)


def count_right(scores, tags):
    """How many words have the right tag, word by word."""
    right = 0
    for sentence in range(len(tags)):
        for time in range(len(tags[sentence])):
            if scores[sentence, time].argmax().item() == tags[sentence, time].item():
                right += 1
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=32)
    asked = parser.parse_args()
    torch.manual_seed(0)
    model = Tagger(asked.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(asked.epochs):
        right = 0
        for words, tags in DataLoader(Sentences(640, 25), batch_size=asked.batch, shuffle=True):
            optimizer.zero_grad()
            scores = model(words)
            loss = criterion(scores.flatten(0, 1), tags.flatten())
            loss.backward()
            optimizer.step()
            right += count_right(scores, tags)
        print(f"epoch {epoch}: {right / 16000:.1%} of the words are right")


if __name__ == "__main__":
    main()
