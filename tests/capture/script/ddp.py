"""A job of two processes by gloo, as torchrun, ``mp.spawn`` or a fork starts them."""

import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


def train(rank: int | None = None) -> None:
    """Train in this process, one of two."""
    torch.set_num_threads(1)
    if rank is not None:
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
        os.environ.setdefault("MASTER_PORT", sys.argv[2])
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.LSTM(8, 4, batch_first=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.ones(40, 5, 8))
    for (x,) in DataLoader(data, batch_size=2, num_workers=1):
        optimizer.zero_grad()
        model(x)[0].sum().backward()
        optimizer.step()
    sys.stdout.write(f"trained {dist.get_rank()} {sys.argv[1:]}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        torch.multiprocessing.spawn(train, nprocs=2)
    elif sys.argv[1] == "fork":
        processes = [torch.multiprocessing.Process(target=train, args=(r,)) for r in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    else:
        train()
