"""Read a batch from the user's own text corpus, or from Keras's imdb.npz.

A text is read as in W. Zaremba's language model of the Penn Treebank, and imdb.npz as by Keras's
``imdb.load_data``. Capture workers import this file, so Python 3.7 and NumPy must suffice.
"""

from __future__ import annotations

import collections
import pickle
import zipfile
from typing import TYPE_CHECKING, Any, List, Tuple

from lstmprof.base.errors import UsageError

if TYPE_CHECKING:
    from lstmprof.workloads import Workload

END_OF_LINE = "<eos>"
#: Word numbers as in Keras: ``start_char``, ``oov_char`` and ``index_from``.
START, BEYOND, FIRST = 1, 2, 3


def tokens(w: Workload, seed: int) -> Tuple[Any, Any]:
    """Return inputs (time, batch), and targets of this shape (imdb.npz: (batch,))."""
    assert w.data is not None
    try:
        if zipfile.is_zipfile(w.data):
            return _reviews(w, seed)
        return _text(w, seed)
    except (OSError, UnicodeDecodeError, KeyError, ValueError, pickle.UnpicklingError) as fault:
        reason = str(fault) or type(fault).__name__
        raise UsageError(
            "{}: is neither a text nor imdb.npz ({})".format(w.data, reason),
            "give the data file of the study to --data",
        ) from fault


def _text(w: Workload, seed: int) -> Tuple[Any, Any]:
    import numpy as np

    if not w.each_step:
        raise UsageError(
            "{}: is a text, but {} does not predict the next word".format(w.data, w.name),
            "give imdb.npz, or use --workload ptb-large",
        )
    words = _words(str(w.data))
    length = len(words) // w.batch
    if length <= w.time_steps:
        raise UsageError(
            "{}: has {} words, too few for {} sequences of {} and the next word".format(
                w.data, len(words), w.batch, w.time_steps
            ),
            "give a longer text, or lower --batch or --time-steps",
        )
    numbers = np.array(_numbers(words, w.vocabulary or 0), dtype=np.int64)
    # put the words of one sequence into a column; the target of a word is the next word
    beside = numbers[: w.batch * length].reshape(w.batch, length).T
    windows = (length - 1) // w.time_steps
    begin = np.random.RandomState(seed + 1).randint(windows) * w.time_steps
    end = begin + w.time_steps
    return np.ascontiguousarray(beside[begin:end]), np.ascontiguousarray(
        beside[begin + 1 : end + 1]
    )


def _words(path: str) -> List[str]:
    with open(path, encoding="utf-8") as file:
        return [word for line in file for word in (*line.split(), END_OF_LINE)]


def _numbers(words: List[str], vocabulary: int) -> List[int]:
    """Return each word's number by frequency: 0 is the most frequent."""
    counts = collections.Counter(words)
    order = sorted(counts, key=lambda word: (-counts[word], word))
    # rare words share the last number of the vocabulary
    places = {word: min(place, vocabulary - 1) for place, word in enumerate(order)}
    return [places[word] for word in words]


def _reviews(w: Workload, seed: int) -> Tuple[Any, Any]:
    import numpy as np

    if w.each_step or w.classes < 2:
        raise UsageError(
            "{}: has reviews of two classes, but {} has other targets".format(w.data, w.name),
            "give a text file, or use --workload imdb-gru",
        )
    reviews, labels = (_array(str(w.data), name) for name in ("x_train", "y_train"))
    if len(reviews) < w.batch:
        raise UsageError(
            "{}: has {} reviews, fewer than the batch of {}".format(w.data, len(reviews), w.batch),
            "lower --batch",
        )
    chosen = np.random.RandomState(seed + 1).permutation(len(reviews))[: w.batch]
    inputs = np.zeros((w.time_steps, w.batch), dtype=np.int64)
    for column, row in enumerate(chosen):
        review = _review(reviews[row], w)
        inputs[w.time_steps - len(review) :, column] = review
    return inputs, np.array([labels[row] for row in chosen], dtype=np.int64)


def _review(words: Any, w: Workload) -> List[int]:
    vocabulary = w.vocabulary or 0
    numbers = [START] + [int(word) + FIRST for word in words]
    return [n if n < vocabulary else BEYOND for n in numbers][-w.time_steps :]


def _array(path: str, name: str) -> Any:
    import numpy as np

    with zipfile.ZipFile(path) as archive, archive.open(name + ".npy") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("{} has an unsupported version of NumPy's format".format(name))
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject:
            return _Arrays(file, encoding="latin1").load()
        return np.frombuffer(file.read(), dtype=dtype).reshape(shape)


class _Arrays(pickle.Unpickler):
    """Loads only NumPy arrays, because a pickle can run any code."""

    def find_class(self, module: str, name: str) -> Any:
        import numpy as np

        known = {
            "_reconstruct": np.empty(0).__reduce__()[0],
            "ndarray": np.ndarray,
            "dtype": np.dtype,
        }
        if module.partition(".")[0] != "numpy" or name not in known:
            raise pickle.UnpicklingError("it refers to {}.{}".format(module, name))
        return known[name]
