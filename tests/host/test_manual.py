"""The manual page as man renders it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("manual") / "wherry.1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with path.open("wb") as file:
        subprocess.run([sys.executable, "-P", "-m", "wherry.manual"], stdout=file, check=True, env=environment, cwd="/")
    return path


def man(*arguments: str, locale: str, width: int = 80) -> str:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": locale, "MANROFFSEQ": "", "MANWIDTH": str(width)}
    done = subprocess.run(["man", *arguments], capture_output=True, check=True, env=environment, timeout=60)
    assert done.stderr == b""
    return done.stdout.decode(errors="replace")


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_man_renders_the_page_without_a_warning(page: Path, locale: str) -> None:
    shown = man(
        "--warnings", "-E", "UTF-8" if locale == "C.UTF-8" else "ascii", "--local-file", str(page), locale=locale
    )
    lines = shown.splitlines()
    assert lines[0].startswith("WHERRY(1)") and max(map(len, lines)) <= 80
    for heading in ("NAME", "SYNOPSIS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"):
        assert heading in lines
    assert any(line.split() == ["--max-pods", "<int>"] for line in lines)


def test_whatis_reads_the_name(page: Path) -> None:
    done = subprocess.run(["lexgrog", str(page)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.partition(": ")[2].strip() == '"wherry - a Kubernetes that a person can read"'
