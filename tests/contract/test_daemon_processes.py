"""Processes that the command starts as root."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from wherry import daemons

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("module", ["wherry.supervisor", "wherry.roles", "wherry.allocator"])
def test_daemons_run_no_modules_of_the_current_folder(tmp_path: Path, module: str) -> None:
    for name in ("signal", "json", "asyncio", "argparse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the current folder was run')")
    argv = [*daemons.PYTHON, module, "/nowhere"]
    done = subprocess.run(
        argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "current folder" not in done.stderr, done.stderr
