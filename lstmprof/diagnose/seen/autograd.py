"""Find extra work in PyTorch's backward pass: hooks, recomputation, TorchScript's graphs.

The engine wraps each autograd node in an op ``autograd::engine::evaluate_function: NODE``. Hooks of
gradients run in this op before the node (torch/csrc/autograd/engine.cpp, call_tensor_pre_hooks).
A forward op inside a node is a recomputation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.diagnose.seen.lane import Fact, Lane
from lstmprof.events.table import NONE

#: Smallest number of steps, and largest ratio of the largest to the smallest growth per step, at
#: which lstmprof reports a growing backward pass. Chosen by hand.
_GROWING_STEPS, _EVENLY = 4, 1.25
_WRAPPER = "autograd::engine::evaluate_function: "
_NODE = re.compile(re.escape(_WRAPPER))
#: Pattern of the node around a module with a backward hook. The hook runs after the node.
_MODULE_HOOK = re.compile(re.escape(_WRAPPER) + "BackwardHookFunctionBackward$")
#: Node that sums a parameter's gradient (autograd/functions/accumulate_grad.h). Hooks of the
#: parameter run after the node's ops.
_SUMS_GRADIENTS = "torch::autograd::AccumulateGrad"
_SUMMING = re.compile(r"(?:aten::)?(?:add_?|detach_?|clone|copy_|(?:new_)?empty\w*|view|alias)$")
#: Pattern of ops that only a forward pass calls: no gradient needs these ops.
_FORWARD = re.compile(
    r"aten::(?:lstm|gru|rnn_tanh|rnn_relu|lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell|linear"
    r"|conv[123]d|dropout|layer_norm|batch_norm|embedding|scaled_dot_product_attention)$"
)
_DISTRIBUTED = re.compile(r"c10d::|FullyShardedDataParallel|FSDP::|DistributedDataParallel|nccl")
_SCRIPTED = re.compile(re.escape(_WRAPPER) + r"torch::jit::.*DifferentiableGraphBackward$")


def hooked(lane: Lane) -> tuple[Fact, ...]:
    """Return the ops that run in hooks of gradients, modules and parameters."""
    if (lane.here & lane.events.where_name(_DISTRIBUTED.search)).any():
        return ()  # distributed training fetches parameters and reduces gradients by such hooks
    parent, start_ns = lane.parent, lane.events.start_ns
    wrappers, names = lane.events_named(_NODE.match), lane.names
    codes = {text: code for code, text in enumerate(lane.texts)}
    # map the code of a wrapper's name to the code of the wrapped node's name
    unwrapped = np.array([codes.get(t.removeprefix(_WRAPPER), NONE) for t in lane.texts], np.int64)
    ops = lane.here & lane.events.is_kind("op") & (parent != NONE)
    children = np.flatnonzero(ops & wrappers[parent])
    is_node = unwrapped[names[parent[children]]] == names[children]
    nodes = children[is_node]
    begins = np.full(len(parent), NONE, dtype=np.int64)
    begins[parent[nodes]] = start_ns[nodes]
    hooks = np.zeros(len(parent), dtype=np.bool_)
    # mark only ops before the node: later ops may sum, check or reduce the node's results
    hooks[children] = start_ns[children] < begins[parent[children]]
    module_hooks = lane.events.where_name(_MODULE_HOOK.match)
    hooks[children] |= module_hooks[parent[children]] & ~is_node
    sums = lane.events.is_one_of("name", _SUMS_GRADIENTS) & (wrappers[parent] & (parent != NONE))
    hooks |= ops & sums[parent] & ~lane.events.where_name(_SUMMING.match)
    return lane.spent_in(hooks)


def recomputed(lane: Lane) -> tuple[Fact, ...]:
    """Find forward ops that the backward pass computes again (checkpointing)."""
    node = lane.inside(lane.events_named(_NODE.match))
    forward = lane.events_named(_FORWARD.match) & (node != NONE)
    facts = lane.spent_in(forward)
    rows = np.flatnonzero(forward)
    again = np.isin(node, np.unique(node[rows])) & (node != NONE)
    # also count the Python code of checkpointing, which runs around the ops
    ns = int(lane.spent_ns[again].sum()) / lane.steps
    number = sum(fact.count for fact in facts)
    return tuple(replace(fact, ns=round(ns * fact.count / number)) for fact in facts)


@dataclass(frozen=True)
class Growing:
    """A backward pass that has more nodes in each step than in the step before."""

    first: int  # nodes in the first step
    last: int
    ns: int  # per step, for earlier batches


def growing(lane: Lane) -> Growing | None:
    """Find a backward pass to which every step adds about equally many nodes."""
    if not lane.marked:
        return None
    in_step = lane.step >= 0
    wrappers = lane.events_named(_NODE.match)
    steps, nodes = np.unique(lane.step[wrappers & in_step], return_counts=True)
    backward = lane.inside(wrappers) != NONE
    forward = lane.here & in_step & lane.events.where_name(_FORWARD.match)
    forward &= ~backward
    ops = np.unique(lane.step[forward], return_counts=True)[1]
    if len(nodes) < _GROWING_STEPS or len(nodes) != len(ops) or len(set(ops.tolist())) != 1:
        return None
    more = np.diff(nodes)
    if more.min() <= 0 or more.max() > _EVENLY * more.min():
        return None
    took = [int(lane.spent_ns[backward & (lane.step == step)].sum()) for step in steps]
    earlier = took @ (1 - more.mean() / nodes)
    return Growing(int(nodes[0]), int(nodes[-1]), round(earlier / lane.steps))


def scripted(lane: Lane) -> tuple[Fact, ...]:
    """Return the backward passes of TorchScript graphs."""
    return lane.spent_in(lane.events_named(_SCRIPTED.match))
