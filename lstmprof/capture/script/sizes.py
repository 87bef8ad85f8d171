"""Record the sizes of recurrent layers in TensorFlow, as inputs of ops.

A compiled TensorFlow step has the sizes in its graph. ``breakdown.recurrent`` reads these inputs as
if the profiler had recorded them.
"""

from __future__ import annotations

from typing import Any, List, Optional

from lstmprof.capture.worker.shapes import OpInputs


class GraphSizes:
    """The inputs of the nodes of the ``tf.function`` that is the step, or of a session's graph."""

    def __init__(self) -> None:
        self.function: Any = None
        self.graph: Any = None  # the graph of a TensorFlow 1 session
        # batch size given to Keras's fit, because its graph leaves the batch size open
        self.batch: Optional[int] = None

    def inputs(self) -> List[OpInputs]:
        """Return the inputs of ops that are equal in all graphs of the function.

        TensorFlow may trace a function several times, which makes several graphs.
        """
        from lstmprof.capture.worker.shapes import inputs_of, nodes_of

        traced: List[Any] = getattr(self.function, "_list_all_concrete_functions", list)()
        listed = [self.graph] if self.graph is not None else [each.graph for each in traced]
        graphs = [list(inputs_of(nodes_of(graph), self.batch)) for graph in listed]
        others = [{repr(inputs) for inputs in graph} for graph in graphs[1:]]
        return [
            inputs
            for inputs in (graphs[0] if graphs else ())
            if all(repr(inputs) in graph for graph in others)
        ]
