"""Tensors of model files that a program has mapped."""

from __future__ import annotations

import pathlib
import struct
import subprocess
import sys

from heatmaps import drawn, table
from store import MIB, PATIENCE_S, binary, tiermem

ALIGNMENT = 32


def gguf(tensors: dict[str, int]) -> bytes:
    """The header of a GGUF file of such tensors, by name and bytes."""
    def text(words: str) -> bytes:
        return struct.pack("<Q", len(words)) + words.encode()

    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama")
    place = 0
    for name, size in tensors.items():
        header += text(name) + struct.pack("<IQIQ", 1, size // 4, 0, place)
        place += size
    return header + bytes(-len(header) % ALIGNMENT)


PROGRAM = """
import mmap, time
with open("model.gguf", "rb") as file:
    model = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
until = time.monotonic() + 3
while time.monotonic() < until:
    for page in range(24 << 20, 32 << 20, 4096):
        model[page]
    time.sleep(0.01)
"""


def test_the_hottest_tensor_of_a_mapped_model_is_told(tmp_path: pathlib.Path) -> None:
    sizes = {"token_embd.weight": 16 * MIB, "blk.0.attn_q.weight": 8 * MIB, "blk.0.ffn_up.weight": 8 * MIB, "output.weight": 4096}
    header = gguf(sizes)
    (tmp_path / "model.gguf").write_bytes(header + bytes(sum(sizes.values())))
    (tmp_path / "app.py").write_text(PROGRAM)
    command = [binary(), "record", "--slice", "200ms", "--granule", "1MiB", "-o", "app.rec", "--", sys.executable, "app.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=True)
    recording = tmp_path / "app.rec"
    told = {row["name"]: row for row in table(str(recording), "--tensors")}
    names = [f"model.gguf: {name}" for name in sizes]
    assert [told[name]["bytes"] for name in names] == [*sizes.values()]
    hot = told["model.gguf: blk.0.ffn_up.weight"]["accesses"]
    of_model = [row["accesses"] for name, row in told.items() if name.startswith("model.gguf")]
    assert hot > 0.7 * sum(of_model), told
    # Nothing is lost or counted twice.
    whole = {row["name"]: row for row in table(str(recording))}
    assert abs(sum(of_model) / whole["model.gguf"]["accesses"] - 1) < 1e-3
    # Tensors are regions everywhere.
    picture = tmp_path / "tensor.svg"
    drawn(recording, picture, "--tensors", "--region", "model.gguf: blk.0.ffn_up.weight")
    assert "blk.0.ffn_up.weight" in picture.read_text()


def test_without_a_model_it_is_said_what_is_needed(tmp_path: pathlib.Path, recording: pathlib.Path) -> None:
    done = tiermem("heatmap", str(recording), "--tensors")
    assert done.returncode == 1 and "no GGUF or safetensors file" in done.stderr, done
