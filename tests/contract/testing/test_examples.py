"""The examples' tests, as their readers run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.contract.testing.test_plugin import PLUGIN

ROOT = Path(__file__).parents[3]


def test_the_examples_pass() -> None:
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # Helm
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *PLUGIN,
        "-p",
        "no:cacheprovider",
        "examples",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": tools}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout


def test_the_index_names_every_example() -> None:
    folders = {path.name for path in (ROOT / "examples").iterdir() if list(path.glob("test_*.py"))}
    text = (ROOT / "examples" / "README.md").read_text()
    assert folders == {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
