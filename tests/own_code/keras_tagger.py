"""Tags each word of a sentence in Keras with a bidirectional LSTM, trained by fit."""

import sys

import keras
import numpy as np
from keras import layers

WORDS, TAGS, LONGEST = 300, 7, 14


def sentences(count):
    generator = np.random.default_rng(0)
    lengths = generator.integers(4, LONGEST, count)
    return [generator.integers(1, WORDS, length).tolist() for length in lengths]


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    keras.utils.set_random_seed(0)
    words = keras.utils.pad_sequences(sentences(1280), maxlen=LONGEST)  # zeros in front
    model = keras.Sequential(
        [
            layers.Embedding(WORDS, 16, mask_zero=True),
            layers.Bidirectional(layers.LSTM(20, return_sequences=True)),
            layers.Dense(TAGS, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    model.fit(words, words % TAGS, batch_size=32, epochs=epochs, verbose=0)
    print("fitted")


if __name__ == "__main__":
    main()
