"""`wherry reset` itself, in a network namespace where every link is down, also if the saved options are damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stopped_installation import install


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{}", '{"node_name": "n1"', '{"node_name": "n1", "max_pods": "many"}']
)
def test_an_installation_is_removed(tmp_path: Path, content: str | None) -> None:
    settings = install(tmp_path)
    if content is not None:
        settings.layout.settings.write_text(content)
    argv = [
        "unshare",
        "--net",
        "--mount",
        sys.executable,
        "-m",
        "wherry.main",
        "reset",
        "--yes",
        "--prefix",
        str(tmp_path),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not settings.layout.settings.exists() and not settings.layout.pki.exists()
    assert "✓ remove files" in done.stdout + done.stderr
