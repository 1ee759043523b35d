#!/usr/bin/env python3
"""Runs a language model as llama.cpp does: fills a prompt of so many tokens, then decodes so many, one at a time.

    decode.py model.gguf --decode 32
    decode.py model.gguf --prompt 512 --batch 128 --decode 0 --threads 2
    decode.py model.gguf --decode 32 --no-mmap

The prompt is drawn from a seed, and each token decoded is the one that the model thinks most likely (temperature 0), so that the
same arguments do the same. A token that ends a text ends nothing: as many are decoded as are wanted. Without a prompt, decoding
begins with the token that begins a text.

Prints JSON: seconds to load, to fill, to decode and for each token, tokens a second, the last token, and where the file is mapped. --wait prints
`ready prompt` and `ready decode` before these phases and waits for a line on standard input each time, so that who observes can
begin there. Weights are used as they lie in the file, not rearranged as llama.cpp does for some types if it is let.

It needs llama-cpp-python. Valgrind does not know AVX-512; to record, build with CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON
-DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_OPENMP=OFF".
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import time
from pathlib import Path
from typing import Any

import llama_cpp


@llama_cpp.llama_log_callback
def silent(level: int, text: bytes, data: Any) -> None:
    """llama.cpp tells much."""


def load(args: argparse.Namespace, context_tokens: int) -> tuple[Any, Any]:
    """The model and a context for so many tokens."""
    wanted = llama_cpp.llama_model_default_params()
    # Older versions have a flag for each way to load.
    if hasattr(wanted, "load_mode"):
        wanted.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP if args.mmap else llama_cpp.LLAMA_LOAD_MODE_NONE
    else:
        wanted.use_mmap = args.mmap
    wanted.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(str(args.model).encode(), wanted)
    if not model:
        raise SystemExit(f"llama.cpp does not load {args.model}")
    of = llama_cpp.llama_context_default_params()
    of.n_ctx, of.n_batch, of.n_ubatch = context_tokens, args.batch, args.batch
    of.n_threads = of.n_threads_batch = args.threads
    context = llama_cpp.llama_init_from_model(model, of)
    if not context:
        raise SystemExit(f"there is no context of {context_tokens} tokens")
    return model, context


def run(context: Any, tokens: list[int]) -> None:
    """Has the model read these."""
    held = (llama_cpp.llama_token * len(tokens))(*tokens)
    if answer := llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(held, len(tokens))):
        raise SystemExit(f"llama.cpp does not decode: {answer}")


def likeliest(context: Any, vocabulary: int) -> int:
    """The token to follow the last one."""
    scores = ctypes.cast(llama_cpp.llama_get_logits_ith(context, -1), ctypes.POINTER(ctypes.c_float))
    return max(range(vocabulary), key=lambda token: scores[token])


def mapping(path: Path) -> dict[str, int] | None:
    """Where the file is mapped: the first address, the end, and the offset in the file of what lies at the first.

    llama.cpp gives back the pages before the first weights, which it has no more need of.
    """
    name = str(path.resolve())
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    parts = [line for line in lines if len(line) == 6 and line[5] == name]
    if not parts:
        return None
    first, end = parts[0][0].split("-")[0], parts[-1][0].split("-")[1]
    return {"first": int(first, 16), "end": int(end, 16), "file_offset": int(parts[0][2], 16)}


def ready(phase: str, args: argparse.Namespace) -> float:
    """Waits, if it shall, and begins to count."""
    if args.wait:
        print(f"ready {phase}", flush=True)
        input()
    return time.perf_counter()


def main() -> None:
    """Loads, fills, decodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", type=int, default=0, metavar="TOKENS")
    parser.add_argument("--decode", type=int, default=32, metavar="TOKENS")
    parser.add_argument("--batch", type=int, default=512, metavar="TOKENS", help="of the prompt that are read at once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--mmap", action=argparse.BooleanOptionalAction, default=True, help="map the file, or read it into memory")
    parser.add_argument("--seed", type=int, default=1, help="of the prompt")
    parser.add_argument("--wait", action="store_true", help="for a line on standard input before each phase")
    args = parser.parse_args()
    llama_cpp.llama_log_set(silent, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    begun = time.perf_counter()
    model, context = load(args, args.prompt + args.decode + 1)
    words = llama_cpp.llama_model_get_vocab(model)
    vocabulary = llama_cpp.llama_vocab_n_tokens(words)
    load_s = time.perf_counter() - begun

    rng = random.Random(args.seed)
    first = llama_cpp.llama_vocab_bos(words)
    prompt = [first, *(rng.randrange(vocabulary) for _ in range(args.prompt - 1))][: args.prompt]
    begun = ready("prompt", args)
    for at in range(0, len(prompt), args.batch):
        run(context, prompt[at : at + args.batch])
    prompt_s = time.perf_counter() - begun

    begun = ready("decode", args)
    token, token_s = likeliest(context, vocabulary) if prompt else first, []
    for _ in range(args.decode):
        from_s = time.perf_counter()
        run(context, [token])
        token = likeliest(context, vocabulary)
        token_s.append(time.perf_counter() - from_s)
    decode_s = time.perf_counter() - begun
    rates = {
        "prompt_tokens_per_s": args.prompt / prompt_s if args.prompt else None,
        "decode_tokens_per_s": args.decode / decode_s if args.decode else None,
    }
    phases = {"load_s": load_s, "prompt_s": prompt_s, "decode_s": decode_s}
    print(json.dumps({**phases, **rates, "token_s": token_s, "last_token": token, "mapped": mapping(args.model)}))
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)


if __name__ == "__main__":
    main()
