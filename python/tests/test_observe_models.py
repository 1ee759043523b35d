"""The models of experiments/observe: a file of random weights has the layout that llama.cpp reads, and the stride that it says."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "experiments" / "observe"
SMALL = ["--layers", "3", "--embedding", "128", "--feed-forward", "256", "--heads", "4", "--kv-heads", "2"]
VOCABULARY = 354


def run(script: str, *arguments: str) -> Any:
    """What one of them prints."""
    done = subprocess.run([sys.executable, str(FOLDER / script), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def made(path: pathlib.Path, *arguments: str) -> Any:
    """A model, and where its tensors lie."""
    run("make_gguf.py", str(path), *(arguments or SMALL))
    return run("gguf_layers.py", str(path))


def values(path: pathlib.Path, tensor: dict[str, Any]) -> np.ndarray[Any, Any]:
    """A tensor as numbers."""
    raw = np.fromfile(path, np.uint8, tensor["bytes"], offset=tensor["offset"])
    if tensor["type"] in ("f32", "f16"):
        return raw.view(np.float32 if tensor["type"] == "f32" else np.float16).astype(np.float32)
    four = tensor["type"] == "q4_0"
    blocks = raw.reshape(-1, 18 if four else 34)
    scale = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    if four:
        fours = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
        return (scale * (fours.astype(np.float32) - 8)).reshape(-1)
    return (scale * np.ascontiguousarray(blocks[:, 2:]).view(np.int8)).reshape(-1)


@pytest.mark.parametrize("types", ["mixed", "f16", "q8_0", "q4_0", "attention=q8_0,ffn_down=f16"])
def test_a_model_has_the_tensors_of_its_dimensions_one_after_the_other(tmp_path: pathlib.Path, types: str) -> None:
    path = tmp_path / "model.gguf"
    found = made(path, *SMALL, "--types", types)
    tensors = {tensor["name"]: tensor for tensor in found["tensors"]}
    assert found["layers"] == 3
    assert len(tensors) == 3 + 9 * 3
    assert tensors["blk.1.attn_k.weight"]["shape"] == [128, 64]
    assert tensors["blk.2.ffn_down.weight"]["shape"] == [256, 128]
    assert tensors["output.weight"]["shape"] == [128, VOCABULARY]
    assert tensors["blk.0.attn_norm.weight"]["type"] == "f32"
    end = found["data_offset"]
    for tensor in found["tensors"]:
        assert tensor["offset"] % 32 == 0
        assert 0 <= tensor["offset"] - end < 32
        end = tensor["offset"] + tensor["bytes"]
    assert 0 <= path.stat().st_size - end < 32


@pytest.mark.parametrize("types", ["f32", "f16", "q8_0", "q4_0"])
def test_weights_keep_what_comes_out_near_what_goes_in(tmp_path: pathlib.Path, types: str) -> None:
    found = made(tmp_path / "model.gguf", *SMALL, "--types", types)
    for tensor in found["tensors"]:
        got = values(tmp_path / "model.gguf", tensor)
        assert np.isfinite(got).all()
        if len(tensor["shape"]) == 1:
            assert (got == 1).all()
        else:
            deviation = float(got.std()) * tensor["shape"][0] ** 0.5
            assert 0.7 < deviation < 1.6, tensor["name"]
            assert abs(float(got.mean())) < 0.15 * float(got.std())


def test_the_stride_is_that_of_every_tensor(tmp_path: pathlib.Path) -> None:
    found = made(tmp_path / "model.gguf")
    offsets = {tensor["name"]: tensor["offset"] for tensor in found["tensors"]}
    for name, offset in offsets.items():
        if name.startswith("blk.1."):
            assert offsets[name.replace("blk.1.", "blk.2.")] - offset == found["stride_bytes"]
    attention, feed_forward = (2 * 128 * 128 + 2 * 128 * 64) * 2, 3 * 128 * 256 // 32 * 18
    assert found["stride_bytes"] == attention + feed_forward + 2 * 128 * 4


def test_the_same_arguments_give_the_same_file(tmp_path: pathlib.Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        made(tmp_path / name, *SMALL, "--seed", seed)
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again
    assert first != other


@pytest.mark.parametrize("types", ["mixed", "f16"])
def test_a_size_chooses_dimensions_that_just_fit(tmp_path: pathlib.Path, types: str) -> None:
    found = run("make_gguf.py", str(tmp_path / "model.gguf"), "--size", "32MiB", "--types", types)
    weights = found["bytes"] - run("gguf_layers.py", str(tmp_path / "model.gguf"), "--summary")["data_offset"]
    assert 0.8 * (32 << 20) < weights <= 32 << 20
    fixed = run("make_gguf.py", str(tmp_path / "model.gguf"), "--size", "32MiB", "--types", types, "--layers", "4")
    assert fixed["layers"] == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--types", "q5_1"], "a mix"),
        (["--types", "norm=f16"], "a mix"),
        (["--embedding", "100", "--heads", "3"], "do not share"),
        (["--embedding", "48", "--heads", "1"], "no multiple"),
        (["--size", "1KiB"], "too few"),
        (["--size", "64MiB", "--embedding", "128"], "all dimensions"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path: pathlib.Path, arguments: list[str], complaint: str) -> None:
    with pytest.raises(RuntimeError, match=complaint):
        run("make_gguf.py", str(tmp_path / "model.gguf"), *arguments)
    assert not (tmp_path / "model.gguf").exists()


def test_a_file_that_is_no_model_or_is_cut_off_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.gguf"
    made(path)
    whole = path.read_bytes()
    for cut, complaint in ((whole[:-1000], "cut off"), (whole[:200], "within its head"), (b"text", "no GGUF")):
        path.write_bytes(cut)
        with pytest.raises(RuntimeError, match=complaint):
            run("gguf_layers.py", str(path))


def test_the_reader_of_the_format_s_authors_agrees(tmp_path: pathlib.Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    found = made(tmp_path / "model.gguf")
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert set(read) == {tensor["name"] for tensor in found["tensors"]}
    for tensor in found["tensors"]:
        theirs = read[tensor["name"]]
        assert (theirs.data_offset, theirs.n_bytes) == (tensor["offset"], tensor["bytes"])
        assert theirs.shape.tolist() == tensor["shape"]
        weights = gguf.dequantize(theirs.data, theirs.tensor_type).reshape(-1)
        assert np.allclose(weights, values(tmp_path / "model.gguf", tensor), atol=1e-6)


def test_llama_cpp_decodes_it_the_same_way_each_time(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    path = tmp_path / "model.gguf"
    made(path)
    told = [
        run("programs/decode.py", str(path), "--prompt", "8", "--batch", "4", "--decode", "4", *more)
        for more in ([], [], ["--no-mmap"])
    ]
    assert len({one["last_token"] for one in told}) == 1
    assert [bool(one["mapped"]) for one in told] == [True, True, False]
    mapped = told[0]["mapped"]
    weights = run("gguf_layers.py", str(path), "--summary")
    assert mapped["file_offset"] <= weights["data_offset"]
    assert mapped["file_offset"] + mapped["end"] - mapped["first"] >= weights["bytes"]


def test_a_product_of_matrix_and_vector_says_where_they_lie() -> None:
    for more in ([], ["--transposed"]):
        found = run("programs/matvec.py", "--size", "40", "--repeat", "2", *more)
        assert [found[name][1] for name in ("matrix", "vector", "product")] == [12800, 320, 320]
        rows = 1 / (1 + np.arange(40.0))
        by_hand = np.linspace(0, 1, 40)
        expected = (rows @ by_hand) * 40 if more else rows.sum() * by_hand.sum()
        assert found["sum"] == pytest.approx(expected)
