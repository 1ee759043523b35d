#!/usr/bin/env python3
"""Multiplies a square matrix of doubles with a vector by BLAS, again and again.

    matvec.py --size 10000 --repeat 1000
    matvec.py --size 500 --repeat 4 --transposed

NumPy's library for linear algebra does it: dgemv, over the rows of the matrix as they lie; with --transposed over its columns,
each scaled by one value of the vector. Prints JSON: seconds of a product, and where matrix, vector and product lie, each with its
first address and its bytes. One thread; under Valgrind, which does not know AVX-512, OPENBLAS_CORETYPE=Haswell has to be set.
"""

from __future__ import annotations

import argparse
import json
import os
import time

# It is read when NumPy is.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np


def main() -> None:
    """Multiplies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10000, help="rows, and columns")
    parser.add_argument("--repeat", type=int, default=1000, help="products")
    parser.add_argument("--transposed", action="store_true")
    parser.add_argument("--wait", action="store_true", help="print `ready` and wait for a line on standard input before the first")
    args = parser.parse_args()
    matrix = np.empty((args.size, args.size))
    # Row after row: no second matrix is held meanwhile.
    for at, row in enumerate(matrix):
        row[:] = 1 / (1 + at)
    vector = np.linspace(0, 1, args.size)
    product = np.zeros(args.size)
    by = matrix.T if args.transposed else matrix
    places = {
        name: [int(of.__array_interface__["data"][0]), of.nbytes]
        for name, of in (("matrix", matrix), ("vector", vector), ("product", product))
    }
    if args.wait:
        print(f"ready {json.dumps(places)}", flush=True)
        input()
    begun = time.perf_counter()
    for _ in range(args.repeat):
        np.dot(by, vector, out=product)
    spent = time.perf_counter() - begun
    print(json.dumps({"product_s": spent / args.repeat, "sum": float(product.sum()), **places}))


if __name__ == "__main__":
    main()
