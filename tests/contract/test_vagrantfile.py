"""The shell command by which the Vagrantfile writes the join command in a worker."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import pytest

VAGRANTFILE = Path(__file__).parents[2] / "vagrant/Vagrantfile"


@pytest.mark.parametrize("left", [False, True])
def test_only_root_may_read_the_token_for_joining(tmp_path: Path, left: bool) -> None:
    found = re.search(r'inside\(machine, "(.*join.*|#\{WRITE_JOIN\}) <<', text := VAGRANTFILE.read_text())
    assert found
    constant = re.search(r'^WRITE_JOIN = "(.*)"$', text, re.MULTILINE)
    command = found[1] if constant is None else found[1].replace("#{WRITE_JOIN}", constant[1])
    file = tmp_path / "vagrant/cache/join"
    file.parent.mkdir(parents=True)
    if left:
        file.write_text("earlier")
        file.chmod(0o644)
    command = command.replace("#{SOURCE}", str(tmp_path)) + " <<'LINE'\nwherry join\nLINE"
    subprocess.run(["sh", "-c", f"umask 022; {command}"], check=True)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("wherry join\n", 0o600)
