#!/usr/bin/env python3
"""Writes a language model of the llama architecture whose weights are random, as a GGUF file that llama.cpp loads.

    make_gguf.py model.gguf --size 1GiB
    make_gguf.py model.gguf --size 1GiB --types f16 --layers 24
    make_gguf.py tiny.gguf --layers 12 --embedding 256 --feed-forward 1024 --heads 4

The values do not matter to a trace of memory; how large tensors are, what types they have and in which order they lie does.
--size chooses the dimensions: the largest model that is not larger. The order within a layer is that of llama.cpp's own
converter. --types names a mix, or types of groups or single tensors, later ones winning, the rest being of the mix `mixed`:
`f16,ffn_down=q8_0`, `attention=q8_0,feed-forward=q4_0,output=f16`.

Mixes: `mixed` has attention, embedding and output in f16 and the feed-forward part in q4_0, as published models keep some tensors
in more bits than the rest; f16, q8_0 and q4_0 have all weights of that type. Norms are always f32.

The vocabulary has 354 tokens: three that mark, a byte each, and the printable characters of ASCII. The same arguments give the
same file. Prints the dimensions and the stride from layer to layer as JSON. It needs NumPy.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from gguf_layers import ALIGNMENT_BYTES, ARRAY, FLOAT32, INT32, KINDS, MAGIC, STRING, UINT32, aligned, layers, tensor_bytes

GROUPS = {
    "attention": ["attn_q", "attn_k", "attn_v", "attn_output"],
    "feed-forward": ["ffn_gate", "ffn_up", "ffn_down"],
    "embedding": ["token_embd"],
    "output": ["output"],
}
TENSORS = [tensor for group in GROUPS.values() for tensor in group]
WRITTEN = ("f32", "f16", "q4_0", "q8_0")
MIXES = {
    "mixed": {tensor: "q4_0" if tensor in GROUPS["feed-forward"] else "f16" for tensor in TENSORS},
    **{kind: dict.fromkeys(TENSORS, kind) for kind in WRITTEN},
}
HEAD_WIDTH = 64
# What --size chooses from: embeddings are multiples of this, feed-forward parts about 8/3 as wide, as in LLaMA.
EMBEDDING_STEP = 256
LAYERS = range(16, 33)
CONTEXT_TOKENS = 32768
CHUNK_BYTES = 1 << 24


@dataclasses.dataclass(frozen=True)
class Dimensions:
    """The shape of a model."""

    layers: int
    embedding: int
    feed_forward: int
    heads: int
    kv_heads: int

    def __post_init__(self) -> None:
        if min(dataclasses.astuple(self)) < 1:
            raise ValueError("dimensions are at least 1")
        if self.embedding % self.heads or self.embedding // self.heads % 2:
            raise ValueError(f"{self.heads} heads do not share an embedding of {self.embedding}: each has an even width")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads do not share {self.kv_heads} of keys and values")


def words() -> Iterator[tuple[str, float, int]]:
    """The vocabulary: each token's text, score and type, as llama.cpp numbers them."""
    unknown, control, byte, normal = 2, 3, 6, 1
    yield "<unk>", 0.0, unknown
    yield "<s>", 0.0, control
    yield "</s>", 0.0, control
    for value in range(256):
        yield f"<0x{value:02X}>", 0.0, byte
    for code in range(32, 127):
        yield "\u2581" if code == 32 else chr(code), float(-code), normal


VOCABULARY = list(words())


def plan(size: Dimensions, types: dict[str, str]) -> list[tuple[str, str, tuple[int, ...]]]:
    """The tensors in the order of the file: name, type, shape with what runs fastest first."""
    e, f, kv = size.embedding, size.feed_forward, size.embedding // size.heads * size.kv_heads
    tensors: list[tuple[str, str, tuple[int, ...]]] = [("token_embd.weight", types["token_embd"], (e, len(VOCABULARY)))]
    for at in range(size.layers):
        parts = [
            ("attn_norm", (e,)),
            ("ffn_down", (f, e)),
            ("ffn_gate", (e, f)),
            ("ffn_up", (e, f)),
            ("ffn_norm", (e,)),
            ("attn_k", (e, kv)),
            ("attn_output", (e, e)),
            ("attn_q", (e, e)),
            ("attn_v", (e, kv)),
        ]
        tensors += [(f"blk.{at}.{part}.weight", types.get(part, "f32"), shape) for part, shape in parts]
    return [*tensors, ("output_norm.weight", "f32", (e,)), ("output.weight", types["output"], (e, len(VOCABULARY)))]


def weight_bytes(size: Dimensions, types: dict[str, str]) -> int:
    """Of all tensors with what lies between them."""
    return sum(aligned(tensor_bytes(kind, shape), ALIGNMENT_BYTES) for _, kind, shape in plan(size, types))


def chosen(wanted_bytes: int, types: dict[str, str], layer_counts: range) -> Dimensions:
    """The largest model whose weights are not larger, of the usual proportions."""
    best: tuple[int, Dimensions] | None = None
    for count in layer_counts:
        for steps in range(1, 129):
            embedding = steps * EMBEDDING_STEP
            feed_forward = math.ceil(embedding * 8 / 3 / EMBEDDING_STEP) * EMBEDDING_STEP
            heads = embedding // HEAD_WIDTH
            size = Dimensions(count, embedding, feed_forward, heads, heads)
            total = weight_bytes(size, types)
            if total > wanted_bytes:
                break
            if best is None or total > best[0]:
                best = total, size
    if best is None:
        raise ValueError(f"{wanted_bytes} bytes are too few: give --layers, --embedding and --feed-forward")
    return best[1]


def types_of(text: str) -> dict[str, str]:
    """Of each tensor, as --types says."""
    types = dict(MIXES["mixed"])
    for word in text.split(","):
        name, _, kind = word.partition("=")
        if not kind and name in MIXES:
            types = dict(MIXES[name])
        elif kind in WRITTEN and (name in GROUPS or name in TENSORS):
            types |= dict.fromkeys(GROUPS.get(name, [name]), kind)
        else:
            raise ValueError(f"--types {word}: a mix ({', '.join(MIXES)}), or GROUP=TYPE or TENSOR=TYPE with {', '.join(WRITTEN)}")
    return types


def text(value: str) -> bytes:
    """A string as the format has it."""
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def pair(key: str, kind: int, value: bytes) -> bytes:
    """Of metadata."""
    return text(key) + struct.pack("<I", kind) + value


def items(kind: int, values: list[bytes]) -> bytes:
    """An array of metadata."""
    return struct.pack("<IQ", kind, len(values)) + b"".join(values)


def metadata(size: Dimensions) -> list[bytes]:
    """What llama.cpp asks of a model."""
    numbers = {
        "llama.block_count": size.layers,
        "llama.context_length": CONTEXT_TOKENS,
        "llama.embedding_length": size.embedding,
        "llama.feed_forward_length": size.feed_forward,
        "llama.attention.head_count": size.heads,
        "llama.attention.head_count_kv": size.kv_heads,
        "llama.rope.dimension_count": size.embedding // size.heads,
        "llama.vocab_size": len(VOCABULARY),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "general.alignment": ALIGNMENT_BYTES,
    }
    return [
        pair("general.architecture", STRING, text("llama")),
        pair("general.name", STRING, text("random weights")),
        pair("llama.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", 1e-5)),
        pair("tokenizer.ggml.model", STRING, text("llama")),
        pair("tokenizer.ggml.tokens", ARRAY, items(STRING, [text(word) for word, _, _ in VOCABULARY])),
        pair("tokenizer.ggml.scores", ARRAY, items(FLOAT32, [struct.pack("<f", score) for _, score, _ in VOCABULARY])),
        pair("tokenizer.ggml.token_type", ARRAY, items(INT32, [struct.pack("<i", kind) for _, _, kind in VOCABULARY])),
        *(pair(key, UINT32, struct.pack("<I", number)) for key, number in numbers.items()),
    ]


def drawn(rng: np.random.Generator, kind: str, count: int, scale: float) -> npt.NDArray[np.uint8]:
    """The bytes of so many values, of about this size: random bits but for exponents, which is as quick as a disk."""
    blocks = count // KINDS[kind].values
    if kind == "f32":
        return (rng.random(count, dtype=np.float32) * np.float32(4 * scale) - np.float32(2 * scale)).view(np.uint8)
    if kind == "f16":
        # Sign and mantissa are random; the exponent is one for all.
        exponent = max(math.floor(math.log2(scale)) + 15, 1)
        bits = np.frombuffer(rng.bytes(2 * count), np.uint16) & np.uint16(0x83FF)
        return (bits | np.uint16(exponent << 10)).view(np.uint8)
    # A block has its scale, half a float, then the values as integers: from -8 with 4 bits, from -128 with 8.
    bytes_of = KINDS[kind].bytes
    deviation = {"q4_0": 4.6, "q8_0": 73.9}[kind]
    out = np.empty((blocks, bytes_of), np.uint8)
    out[:, :2] = np.array([scale / deviation], np.float16).view(np.uint8)
    out[:, 2:] = np.frombuffer(rng.bytes(blocks * (bytes_of - 2)), np.uint8).reshape(blocks, bytes_of - 2)
    return out.reshape(-1)


def write_weights(file: BinaryIO, rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> None:
    """One tensor: ones if it is a vector, as norms begin; else random of a size that keeps what comes out near what goes in."""
    if len(shape) == 1:
        np.ones(shape[0], np.float32).tofile(file)
        return
    left = math.prod(shape)
    most = CHUNK_BYTES // KINDS[kind].bytes * KINDS[kind].values
    while left:
        count = min(left, most)
        drawn(rng, kind, count, shape[0] ** -0.5).tofile(file)
        left -= count


def write(path: Path, size: Dimensions, types: dict[str, str], seed: int) -> None:
    """The whole file."""
    tensors = plan(size, types)
    pairs = metadata(size)
    offset, described = 0, []
    for name, kind, shape in tensors:
        described.append(
            text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, KINDS[kind].number, offset),
        )
        offset = aligned(offset + tensor_bytes(kind, shape), ALIGNMENT_BYTES)
    head = MAGIC + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(described)
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(head)
        for _, kind, shape in tensors:
            file.write(b"\0" * (aligned(file.tell(), ALIGNMENT_BYTES) - file.tell()))
            write_weights(file, rng, kind, shape)
        file.write(b"\0" * (aligned(file.tell(), ALIGNMENT_BYTES) - file.tell()))


def bytes_of(size: str) -> int:
    """Of a size such as 512MiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(B|KiB|MiB|GiB)?", size)
    if not found:
        raise argparse.ArgumentTypeError(f"{size} is no size: 512MiB is one")
    return int(float(found[1]) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(found[2] or "B"))


def dimensions(args: argparse.Namespace, types: dict[str, str]) -> Dimensions:
    """As the command line has them."""
    if args.size is not None:
        if args.embedding or args.feed_forward or args.heads or args.kv_heads:
            raise ValueError("--size chooses all dimensions but --layers")
        return chosen(args.size, types, range(args.layers, args.layers + 1) if args.layers else LAYERS)
    embedding = args.embedding or 256
    heads = args.heads or max(embedding // HEAD_WIDTH, 1)
    return Dimensions(args.layers or 12, embedding, args.feed_forward or 4 * embedding, heads, args.kv_heads or heads)


def main() -> None:
    """Writes, and says what."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--size", type=bytes_of, help="of the weights, at most: chooses the dimensions")
    parser.add_argument("--layers", type=int, help="[default: 12; with --size, what fits best]")
    parser.add_argument("--embedding", type=int, help="[default: 256]")
    parser.add_argument("--feed-forward", type=int, help="[default: four times the embedding]")
    parser.add_argument("--heads", type=int, help=f"[default: one for each {HEAD_WIDTH} of the embedding]")
    parser.add_argument("--kv-heads", type=int, help="of keys and values [default: as many as heads]")
    parser.add_argument("--types", default="mixed")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        types = types_of(args.types)
        size = dimensions(args, types)
        write(args.model, size, types, args.seed)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    found: dict[str, Any] = layers(args.model)
    shown = {key: found[key] for key in ("bytes", "stride_bytes")}
    print(json.dumps({**dataclasses.asdict(size), "vocabulary": len(VOCABULARY), "types": types, **shown}))


if __name__ == "__main__":
    main()
