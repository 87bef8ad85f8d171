"""NumPy that counts what it computes, to run the float64 reference on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from lstmprof.capture.worker import reference

_MAKERS = ("asarray", "zeros", "zeros_like", "full_like", "empty", "empty_like")


class CountingNumpy:
    """In place of a module's ``np``: its arrays count flops in ``counts``.

    ``gemm`` of products of matrices, ``scatter`` of additions at indices, ``pointwise`` of others.
    """

    def __init__(self) -> None:
        self.counts = counts = Counter[str]()

        class Counted(np.ndarray):  # type: ignore[type-arg]
            def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
                plain = [np.asarray(x) if isinstance(x, Counted) else x for x in inputs]
                if "out" in options:
                    options["out"] = tuple(np.asarray(x) for x in options["out"])
                found = getattr(ufunc, method)(*plain, **options)
                if method == "at":
                    counts["scatter"] += plain[2].size
                elif ufunc is np.matmul:
                    counts["gemm"] += 2 * found.size * plain[0].shape[-1]
                else:
                    counts["pointwise"] += plain[0].size if method == "reduce" else found.size
                return found.view(Counted) if isinstance(found, np.ndarray) else found

        self.counted = Counted

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if name not in _MAKERS:
            return function
        return lambda *given, **options: function(*given, **options).view(self.counted)

    def einsum(self, subscripts: str, *operands: Any) -> Any:
        """A contraction of two arrays: a product of matrices."""
        plain = [np.asarray(x) for x in operands]
        inputs = subscripts.partition("->")[0].split(",")
        sizes = {
            letter: size
            for letters, x in zip(inputs, plain, strict=True)
            for letter, size in zip(letters, x.shape, strict=True)
        }
        self.counts["gemm"] += 2 * int(np.prod(list(sizes.values())))
        return np.einsum(subscripts, *plain).view(self.counted)

    def sigmoid(self, x: Any) -> Any:
        """One operation an element, as the costs count it."""
        self.counts["pointwise"] += x.size
        return (0.5 * (1 + np.tanh(0.5 * np.asarray(x)))).view(self.counted)


def counting(patch: pytest.MonkeyPatch) -> CountingNumpy:
    """The NumPy on which the reference runs from now on."""
    counted = CountingNumpy()
    patch.setattr(reference, "np", counted)
    patch.setattr(reference, "sigmoid", counted.sigmoid)
    return counted
