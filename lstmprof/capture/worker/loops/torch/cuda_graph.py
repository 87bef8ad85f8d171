"""A step as one CUDA graph: captured after a warm-up on a side stream, then replayed.

What is captured reads static input buffers and leaves its loss and gradients in the graph's own
memory, so a replay is a single launch. Source: PyTorch's "CUDA semantics", section "CUDA Graphs",
whole-network capture; with a gradient scaler the optimizer stays outside, because the scaler reads
back from the device.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterator

import torch


@contextlib.contextmanager
def weights_kept(module: torch.nn.Module, optimizer: Any) -> Iterator[None]:
    """Give ``module`` its weights back at the end, and ``optimizer`` a state of zeros, in place."""
    kept = [p.detach().clone() for p in module.parameters()]
    yield
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), kept):
            parameter.copy_(value)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()


class GraphedWork:
    """``work``, captured when made; ``replay`` runs it again on the same memory.

    ``work`` returns the loss; ``warmup`` steps of it come first, until nothing is compiled any
    more. ``module`` and ``optimizer`` are, after the capture, as before it.
    """

    def __init__(
        self,
        work: Callable[[], torch.Tensor],
        module: torch.nn.Module,
        optimizer: Any,
        warmup: int,
    ) -> None:
        keep_profiler_attached()
        with weights_kept(module, optimizer):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(warmup):
                    optimizer.zero_grad(set_to_none=True)
                    work()
            torch.cuda.current_stream().wait_stream(side)
        optimizer.zero_grad(set_to_none=True)  # gradients are to be made in the graph's memory
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.loss = work()

    def replay(self) -> torch.Tensor:
        """Enqueue the captured work; the loss, which the next replay overwrites."""
        self._graph.replay()
        return self.loss


def keep_profiler_attached() -> None:
    """Keep CUPTI from being torn down between profiler sessions: with CUDA graphs it then crashes.

    Source: the workaround in torch/profiler/profiler.py for Inductor's own CUDA graphs.
    """
    os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
    os.environ.setdefault("TEARDOWN_CUPTI", "0")
