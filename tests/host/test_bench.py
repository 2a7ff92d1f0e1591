"""scripts/bench: what it starts, with which arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = """#!/bin/bash
printf '%s\\n' "$*" >>"$RECORD"
"""


def stubbed(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return scripts/bench beside a Python that records what it is started with."""
    for name, text in (("scripts/install", "#!/bin/sh\n"), ("venv/bin/python", RECORD)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    shutil.copy(ROOT / "scripts/bench", folder / "scripts/bench")
    (folder / "bench").mkdir()
    for name in ("hostile", "store"):
        (folder / f"bench/{name}.py").touch()
    environment = {**os.environ, "VENV": str(folder / "venv"), "RECORD": str(folder / "record")}
    return [str(folder / "scripts/bench")], environment


def test_names_of_attacks_and_options_reach_the_benchmark(tmp_path: Path) -> None:
    argv, environment = stubbed(tmp_path)
    more = ["store", "burst", "hostile", "dns_silent_tcp", "low_large_json", "--seconds", "2"]
    subprocess.run([*argv, *more], env=environment, check=True, timeout=60)
    assert (tmp_path / "record").read_text().splitlines() == [
        "-m bench.store",
        "-m bench.hostile dns_silent_tcp low_large_json --seconds 2",
        "-m bench.cluster burst",
    ]
