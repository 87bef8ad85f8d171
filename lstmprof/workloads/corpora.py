"""A batch from the user's own copy of a study's data: the text of a corpus, or Keras's imdb.npz.

A text, for language models (``each_step``), is read as W. Zaremba's model reads the Penn Treebank:
words by white space, a line ends with a word of its own, the most frequent words have the lowest
numbers, and ``batch`` equal stretches of the text run beside each other; the target is the next
word. Words beyond the vocabulary share its last number.

imdb.npz is read as Keras's ``imdb.load_data`` reads it: a review begins with 1, words follow from 4
on, those beyond the vocabulary are 2; the last ``time_steps`` of them count, and shorter reviews
are filled up with zeros in front. Its reviews are Python lists, which NumPy stores as a pickle: one
that names anything but NumPy's arrays is refused.

Keeps to the standard library, NumPy and Python 3.7: capture workers import it.
"""

from __future__ import annotations

import collections
import pickle
import zipfile
from typing import TYPE_CHECKING, Any, List, Tuple

from lstmprof.errors import UsageError

if TYPE_CHECKING:
    from lstmprof.workloads import Workload

END_OF_LINE = "<eos>"
#: Of Keras: ``start_char``, ``oov_char``, ``index_from``.
START, BEYOND, FIRST = 1, 2, 3


def tokens(w: Workload, seed: int) -> Tuple[Any, Any]:
    """Inputs (time, batch) and targets of ``w`` from the file ``w.data``, int64.

    Raises:
        UsageError: it cannot be read, is no such file, or holds too little.
    """
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
    """The number of each word: its place among all by how often they occur, then by name."""
    counts = collections.Counter(words)
    order = sorted(counts, key=lambda word: (-counts[word], word))
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
    """The array ``name`` of an .npz file, that of Python lists included."""
    import numpy as np

    with zipfile.ZipFile(path) as archive, archive.open(name + ".npy") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("{} has an unsupported version of NumPy's format".format(name))
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject:
            return _Arrays(file, encoding="latin1").load()
        return np.frombuffer(file.read(), dtype=dtype).reshape(shape)


class _Arrays(pickle.Unpickler):
    """Reads NumPy's arrays and what Python has built in, and nothing else that could run."""

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
