#!/usr/bin/env python3
"""Says where the weights of a model lie in its file: each tensor's offset, bytes and layer, and the stride from layer to layer.

    gguf_layers.py model.gguf
    gguf_layers.py model.gguf --summary

A model in a GGUF file is mapped as it is, so that these offsets, added to where the mapping of the file's beginning is or would
be, are the addresses that the weights are loaded from. Prints JSON. `stride_bytes` is from the first tensor of a layer to the
first of the next one; it is null where layers differ, as they do if some are of other types than the rest: `strides_bytes` has
all of them.

The format is described in ggml/docs/gguf.md of llama.cpp; versions 2 and 3 are read.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import re
import struct
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = b"GGUF"
ALIGNMENT_BYTES = 32
ALIGNMENT_KEY = "general.alignment"


@dataclasses.dataclass(frozen=True)
class Kind:
    """How a tensor's values are stored: blocks of so many values in so many bytes."""

    number: int
    values: int
    bytes: int


KINDS = {
    "f32": Kind(0, 1, 4),
    "f16": Kind(1, 1, 2),
    "q4_0": Kind(2, 32, 18),
    "q4_1": Kind(3, 32, 20),
    "q5_0": Kind(6, 32, 22),
    "q5_1": Kind(7, 32, 24),
    "q8_0": Kind(8, 32, 34),
    "q2_K": Kind(10, 256, 84),
    "q3_K": Kind(11, 256, 110),
    "q4_K": Kind(12, 256, 144),
    "q5_K": Kind(13, 256, 176),
    "q6_K": Kind(14, 256, 210),
    "bf16": Kind(30, 1, 2),
}
NAMES = {kind.number: name for name, kind in KINDS.items()}


# Types of metadata.
UINT32, FLOAT32, INT32, STRING, ARRAY = 4, 6, 5, 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


def tensor_bytes(kind: str, shape: tuple[int, ...]) -> int:
    """What a tensor takes, without what fills up to the alignment. The first of `shape` runs fastest, as llama.cpp has it."""
    of = KINDS[kind]
    if shape[0] % of.values:
        raise ValueError(f"{kind} stores {of.values} values together, which a row of {shape[0]} is no multiple of")
    return math.prod(shape) // of.values * of.bytes


def aligned(offset: int, alignment: int) -> int:
    """The next multiple."""
    return -(-offset // alignment) * alignment


def layer_of(name: str) -> int | None:
    """The layer of a tensor, counted from 0; none for those before and after all layers."""
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else None


class Reader:
    """The head of a file, from its beginning."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def take(self, layout: str) -> Any:
        """One number."""
        size = struct.calcsize(layout)
        read = self.file.read(size)
        if len(read) < size:
            raise ValueError("the file ends within its head")
        return struct.unpack(layout, read)[0]

    def text(self) -> str:
        """A string, which its length precedes."""
        length = self.take("<Q")
        read = self.file.read(length)
        if len(read) < length:
            raise ValueError("the file ends within its head")
        return read.decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Of metadata."""
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            of, count = self.take("<I"), self.take("<Q")
            return [self.value(of) for _ in range(count)]
        if kind not in SCALARS:
            raise ValueError(f"metadata of type {kind} are not known")
        return self.take(SCALARS[kind])


def read_head(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """The metadata, the tensors in the order of the file, with offsets from its beginning, and where their data begin.

    Raises:
        ValueError: If it is no GGUF file of a known version, is cut off, or has tensors of unknown types.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path} is no GGUF file")
        head = Reader(file)
        version = head.take("<I")
        if version not in (2, 3):
            raise ValueError(f"{path} is GGUF of version {version}, 2 and 3 are read")
        count, pairs = head.take("<Q"), head.take("<Q")
        metadata = {}
        for _ in range(pairs):
            key = head.text()
            metadata[key] = head.value(head.take("<I"))
        tensors = []
        for _ in range(count):
            name = head.text()
            shape = tuple(head.take("<Q") for _ in range(head.take("<I")))
            number, offset = head.take("<I"), head.take("<Q")
            if number not in NAMES:
                raise ValueError(f"{path}: {name} is of type {number}, which is not known")
            kind = NAMES[number]
            tensors.append(
                {
                    "name": name,
                    "type": kind,
                    "shape": list(shape),
                    "offset": offset,
                    "bytes": tensor_bytes(kind, shape),
                    "layer": layer_of(name),
                }
            )
        data_offset = aligned(file.tell(), metadata.get(ALIGNMENT_KEY, ALIGNMENT_BYTES))
    for tensor in tensors:
        tensor["offset"] += data_offset
    tensors.sort(key=lambda tensor: tensor["offset"])
    end = max((tensor["offset"] + tensor["bytes"] for tensor in tensors), default=0)
    if end > path.stat().st_size:
        raise ValueError(f"{path} is cut off: its tensors end at {end} bytes, the file at {path.stat().st_size}")
    return metadata, tensors, data_offset


def layers(path: Path) -> dict[str, Any]:
    """What is printed."""
    metadata, tensors, data_offset = read_head(path)
    first: dict[int, int] = {}
    for tensor in tensors:
        if tensor["layer"] is not None:
            first.setdefault(tensor["layer"], tensor["offset"])
    starts = [offset for _, offset in sorted(first.items())]
    strides = [after - before for before, after in itertools.pairwise(starts)]
    return {
        "architecture": metadata.get("general.architecture"),
        "bytes": path.stat().st_size,
        "data_offset": data_offset,
        "layers": len(starts),
        "layer_offsets": starts,
        "stride_bytes": strides[0] if len(set(strides)) == 1 else None,
        "strides_bytes": sorted(set(strides)),
        "tensors": tensors,
    }


def main() -> None:
    """Reads and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--summary", action="store_true", help="without each tensor")
    args = parser.parse_args()
    try:
        found = layers(args.model)
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from error
    if args.summary:
        del found["tensors"]
    print(json.dumps(found, indent=None if args.summary else 1))


if __name__ == "__main__":
    main()
