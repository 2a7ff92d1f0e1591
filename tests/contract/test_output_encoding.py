"""Output of commands in encodings without the marks that they print."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from wherry import main, progress
from wherry.errors import WherryError
def fail():
    with progress.step("wait for node n\\u00f6rd"):
        pass
    with progress.step("stop"):
        raise WherryError("too long: a\\u2026")
main.app = fail
main.main()
"""


@pytest.mark.parametrize(
    ("encoding", "name", "marks"),
    [
        ("utf-8", "n\u00f6rd", "\u2713 \u2717 \u2026"),
        ("iso-8859-1", "n\u00f6rd", "+ x ..."),
        ("ascii", "n\\xf6rd", "+ x ..."),
    ],
)
def test_marks_are_ascii_where_the_encoding_lacks_them(encoding: str, name: str, marks: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, timeout=60, check=False)
    good, bad, more = marks.split()
    out, err = (data.decode(encoding) for data in (done.stdout, done.stderr))
    assert out == f"{good} wait for node {name} (0.0 s)\n{bad} stop\n"
    assert (done.returncode, err) == (1, f"wherry: too long: a{more}\n")
