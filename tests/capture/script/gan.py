"""Two optimizers, accumulated gradients, loaders with a worker, and an exit code: as GANs have."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    generator, critic = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), nn.Linear(2, 1)
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.randn(2048, 2)), batch_size=4, num_workers=1)
    for number, (real,) in enumerate(data):
        of_critic.zero_grad()
        for batch in (real, generator(torch.randn(4, 4)).detach()):
            critic(batch).mean().backward()
        of_critic.step()
        if number % 2:
            of_generator.zero_grad()
            critic(generator(torch.randn(4, 4))).mean().backward()
            of_generator.step()
    sys.exit(6)


if __name__ == "__main__":
    main()
