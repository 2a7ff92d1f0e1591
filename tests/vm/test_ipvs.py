"""The IPVS mode with real packets, on Debian's kernel in a small virtual machine: few other kernels here have it.

Not Vagrant's machines: nothing is installed, the kernel reads this machine's files, and the whole takes some minutes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STATE = Path(os.environ.get("WHERRY_VM_STATE", "/var/lib/wherry-vm"))
CHECKS = ("ways", "refusals", "local", "affinity", "nobody", "repair", "gone", "dual_stack", "policies", "graceful_end")
CHECKS += ("settings", "schedulers", "tunnel", "cleanup", "packets")


@pytest.mark.timeout(2700)
def test_services_answer_through_virtual_servers() -> None:
    boot, inside = ROOT / "tests/vm/ipvs/boot", ROOT / "tests/vm/ipvs/inside.py"
    command = [str(boot), str(STATE / "ipvs"), "2500", sys.executable, str(inside)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    reported = [line.strip() for line in done.stdout.splitlines() if line.startswith(("ok ", "FAILED "))]
    assert reported == [f"ok {name}" for name in CHECKS], f"{reported}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
