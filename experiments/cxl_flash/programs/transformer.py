#!/usr/bin/env python3
"""Infers with a transformer's encoder whose weights are random: layers of attention and of two dense steps, as BERT has them.

The values do not matter to a trace of memory, the shapes do. Weights come from a file, as a model's do: `--make` writes
it, so that drawing them is not traced.

    transformer.py weights.bin --make --layers 4 --width 256
    transformer.py weights.bin --layers 4 --width 256 --tokens 32 --repeat 10
"""

from __future__ import annotations

import argparse

import numpy as np

HEAD_WIDTH = 64
VOCABULARY = 8192


def shapes(layers: int, width: int) -> list[tuple[int, int]]:
    """Of all weights: the words' vectors, and for each layer query, key, value, output, and the two dense steps."""
    layer = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)]
    return [(VOCABULARY, width), *(layer * layers)]


def normal(x: np.ndarray) -> np.ndarray:
    """Each token's vector with mean 0 and deviation 1."""
    x = x - x.mean(axis=1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)


def attention(x: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Every token looks at every token, in heads."""
    tokens, width = x.shape
    heads = width // HEAD_WIDTH
    q, k, v = ((x @ weights).reshape(tokens, heads, HEAD_WIDTH).transpose(1, 0, 2) for weights in (query, key, value))
    scores = np.exp((q @ k.transpose(0, 2, 1)) / HEAD_WIDTH**0.5)
    scores /= scores.sum(axis=2, keepdims=True)
    return (scores @ v).transpose(1, 0, 2).reshape(tokens, width) @ output


def main() -> None:
    """Writes the weights, or reads them and infers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("--make", action="store_true", help="write the weights")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768, help=f"of a token's vector, a multiple of {HEAD_WIDTH}")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=1, help="inferences")
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    wanted = shapes(args.layers, args.width)
    if args.make:
        with open(args.weights, "wb") as out:
            for shape in wanted:
                (rng.standard_normal(shape, dtype=np.float32) * 0.02).tofile(out)
        return
    with open(args.weights, "rb") as file:
        words, *rest = (np.fromfile(file, np.float32, rows * columns).reshape(rows, columns) for rows, columns in wanted)
    for _ in range(args.repeat):
        x = words[rng.integers(0, VOCABULARY, args.tokens)]
        for at in range(0, len(rest), 6):
            query, key, value, output, up, down = rest[at : at + 6]
            x = normal(x + attention(x, query, key, value, output))
            x = normal(x + np.maximum(x @ up, 0) @ down)
    print(f"transformer: {sum(rows * columns for rows, columns in wanted)} weights, {float(x.sum()):.6f}")


if __name__ == "__main__":
    main()
