"""Documentation: what it names is there."""

from __future__ import annotations

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = re.compile(r"(?<![\w./-])(?:scripts|experiments)/[\w./-]+\.(?:py|sh)")


def test_scripts_that_documents_name_can_be_run() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    named = {name for document in documents for name in SCRIPT.findall(document.read_text())}
    assert len(named) > 10, named
    wrong = []
    for name in sorted(named):
        script = ROOT / name
        if not script.exists():
            wrong.append(f"{name} is not there")
            continue
        text = script.read_text()
        # What has nothing to run is named for what it describes.
        is_run = text.startswith("#!") or "__main__" in text
        if is_run and not (text.startswith("#!") and os.access(script, os.X_OK)):
            wrong.append(f"{name} cannot be run by its name: it lacks #! or the executable bit")
    assert not wrong, wrong
