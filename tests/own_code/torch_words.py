"""A word language model in plain PyTorch: the loop subtracts the gradients itself."""

import sys

import torch
from torch import nn

WORDS, SIZE, LENGTH, BATCH, RATE = 60, 16, 40, 20, 2.0


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, SIZE)
        self.lstm = nn.LSTM(SIZE, SIZE, 2)
        self.scores = nn.Linear(SIZE, WORDS)

    def forward(self, words, states=None):
        outputs, states = self.lstm(self.embedding(words), states)
        return self.scores(outputs).flatten(0, 1), states


@torch.no_grad()
def evaluate(model, text, criterion):
    batches = zip(text[:-1].split(LENGTH), text[1:].split(LENGTH), strict=True)
    return sum(criterion(model(words)[0], after.flatten()) for words, after in batches) / 20


def main():
    torch.manual_seed(0)
    text = (torch.arange(4801)[:, None] // 3 + torch.arange(BATCH)) % WORDS
    model, criterion = Words(), nn.CrossEntropyLoss()
    for epoch in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
        right, states = 0, None
        for at in range(0, 4000, LENGTH):
            model.zero_grad()
            states = states and tuple(state.detach() for state in states)
            scores, states = model(text[at : at + LENGTH], states)
            next_words = text[at + 1 : at + LENGTH + 1].flatten()
            criterion(scores, next_words).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-RATE)
            for n in range(LENGTH * BATCH):
                right += scores[n].argmax().item() == next_words[n].item()
        print(f"epoch {epoch}: {right / 80000:.1%}, loss {evaluate(model, text[4000:], criterion)}")


if __name__ == "__main__":
    main()
