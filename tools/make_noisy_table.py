"""Writes the table of the ladder mlp_noise: 20 columns, five classes, a fifth of the training labels redrawn.

    python tools/make_noisy_table.py table.npz

Labels are those of a random network of two layers. Values are eighths, so that the file is small.
"""

import sys

import numpy as np

GENERATOR = np.random.default_rng(20)


def write(path: str) -> None:
    """Write 8,000 training examples and 2,000 test examples."""
    first, second = GENERATOR.normal(size=(20, 32)) / 20**0.5, GENERATOR.normal(size=(32, 5))
    x = (GENERATOR.normal(size=(10000, 20)) * 8).round().clip(-32, 31).astype(np.float32) / 8
    y = (np.maximum(x @ first, 0) @ second).argmax(axis=1)
    noisy = GENERATOR.random(8000) < 0.2
    y[:8000] = np.where(noisy, GENERATOR.integers(0, 5, 8000), y[:8000])
    np.savez_compressed(path, train_x=x[:8000], train_y=y[:8000], test_x=x[8000:], test_y=y[8000:])


if __name__ == "__main__":
    write(sys.argv[1])
