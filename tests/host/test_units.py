"""The systemd units, read by systemd itself."""

import shutil
import subprocess
from pathlib import Path

import pytest

from wherry import units


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_understands_every_unit(tmp_path: Path) -> None:
    paths = []
    for daemon, name in units.UNITS.items():
        text = units.unit(daemon, python=shutil.which("env") or "", containerd=shutil.which("env") or "")
        path = tmp_path / name
        path.write_text(text)
        paths.append(str(path))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True)
    message = [line for line in result.stderr.splitlines() if str(tmp_path) in line or "wherry" in line]
    assert message == []
