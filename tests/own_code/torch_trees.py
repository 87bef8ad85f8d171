"""A Tree-LSTM that sums the states of children: rates random trees, node by node."""

import random
import sys

import torch
from torch import nn

INPUTS, UNITS = 16, 24


class Tree:
    """A node with its word and children."""

    def __init__(self, size, generator):
        self.word = generator.randrange(50)
        sizes = []
        while sum(sizes) < size - 1:
            sizes.append(generator.randint(1, size - 1 - sum(sizes)))
        self.children = [Tree(each, generator) for each in sizes]


class TreeCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates_of_word = nn.Linear(INPUTS, 3 * UNITS)
        self.gates_of_state = nn.Linear(UNITS, 3 * UNITS)
        self.forget_of_word = nn.Linear(INPUTS, UNITS)
        self.forget_of_state = nn.Linear(UNITS, UNITS)

    def forward(self, tree, words):
        states = [self.forward(child, words) for child in tree.children]
        if not states:
            states = [(torch.zeros(1, UNITS), torch.zeros(1, UNITS))]
        hidden = torch.cat([state[0] for state in states])
        memory = torch.cat([state[1] for state in states])
        word = words[tree.word : tree.word + 1]
        gates = self.gates_of_word(word) + self.gates_of_state(hidden.sum(0, keepdim=True))
        i, o, u = gates.chunk(3, 1)
        forget = torch.sigmoid(self.forget_of_word(word) + self.forget_of_state(hidden))
        memory = torch.sigmoid(i) * torch.tanh(u) + (forget * memory).sum(0, keepdim=True)
        return torch.sigmoid(o) * torch.tanh(memory), memory


class Rater(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, INPUTS)
        self.cell = TreeCell()
        self.rate = nn.Linear(UNITS, 1)

    def forward(self, trees):
        roots = [self.cell(tree, self.words.weight)[0] for tree in trees]
        return self.rate(torch.cat(roots))[:, 0]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.manual_seed(0)
    generator = random.Random(0)
    model = Rater()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for number in range(steps):
        trees = [Tree(generator.randint(5, 25), generator) for _ in range(4)]
        wanted = torch.tensor([float(tree.word % 5) for tree in trees])
        loss = nn.functional.mse_loss(model(trees), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"step {number}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
