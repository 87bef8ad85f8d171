"""Sentiment of made-up reviews: a Keras text classifier, padded in front as pad_sequences does."""

import sys

import keras
import numpy as np
from keras import layers

WORDS, LONGEST = 1000, 60


def reviews(count, generator):
    """Sequences of word numbers, and whether more than half of the words are good (even) ones."""
    lengths = generator.integers(10, LONGEST, count)
    texts = [generator.integers(1, WORDS, length).tolist() for length in lengths]
    labels = [np.mean(np.array(text) % 2 == 0) > 0.5 for text in texts]
    return texts, np.array(labels, dtype="float32")


def classifier():
    model = keras.Sequential(
        [
            layers.Embedding(WORDS, 32, mask_zero=True),
            layers.LSTM(64),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return model


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    keras.utils.set_random_seed(0)
    texts, labels = reviews(640, np.random.default_rng(0))
    padded = keras.utils.pad_sequences(texts, maxlen=LONGEST)  # zeros in front: its default
    model = classifier()
    history = model.fit(padded, labels, batch_size=32, epochs=epochs, verbose=2)
    accuracy = history.history["accuracy"][-1]
    print(f"accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
