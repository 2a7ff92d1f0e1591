"""A module is started with jemalloc, and what it starts is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wherry import allocator

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
import os, subprocess, sys

def loaded(pid):
    return "libjemalloc" in open(f"/proc/{pid}/maps").read()

child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
try:
    assert os.path.exists(f"/proc/{child.pid}/maps")
    told = sorted(name for name in os.environ if "MALLOC" in name or name == "LD_PRELOAD")
    print(__name__, os.getpid(), loaded("self"), loaded(child.pid), *sys.argv[1:], *told)
finally:
    child.communicate(b"x")
"""
BARE = "from wherry import allocator; allocator.FOLDERS = (); allocator.main()"
needs_library = pytest.mark.skipif(not allocator.library(), reason=f"{allocator.PACKAGE} is not installed")


def started(folder: Path, *how: str, **more: str) -> tuple[bool, str]:
    """Start a module; return whether it has the process that was started, and what it says."""
    (folder / "started.py").write_text(MODULE)
    inherited = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "LD_PRELOAD"}
    process = subprocess.Popen(
        [sys.executable, "-P", *how, "started", "--one", "two"],
        env=inherited | {"PYTHONPATH": f"{ROOT}:{folder}"} | more,
        stdout=subprocess.PIPE,
        text=True,
    )
    message, _ = process.communicate(timeout=60)
    name, pid, *rest = message.split()
    assert name == "__main__"
    return int(pid) == process.pid, " ".join(rest)


@needs_library
def test_the_process_itself_has_it_and_no_process_that_it_starts(tmp_path: Path) -> None:
    assert started(tmp_path, "-m", "wherry.allocator") == (True, "True False --one two")


@needs_library
def test_two_requests_restart_a_process_once(tmp_path: Path) -> None:
    assert started(tmp_path, "-m", "wherry.allocator", "wherry.allocator") == (True, "True False --one two")


def test_without_the_library_all_is_as_before(tmp_path: Path) -> None:
    assert started(tmp_path, "-c", BARE) == (True, "False False --one two")


def test_what_an_administrator_has_set_stays(tmp_path: Path) -> None:
    found = started(tmp_path, "-m", "wherry.allocator", PYTHONMALLOC="pymalloc")
    assert found == (True, "False False --one two PYTHONMALLOC")
