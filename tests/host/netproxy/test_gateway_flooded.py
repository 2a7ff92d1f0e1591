"""Pods that run as root share the user of gateway and network role, for which the kernel counts descriptors in messages."""

import json
import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_USER = 61999
"""An account that nobody else has: the kernel refuses messages of all its processes meanwhile."""
_CAPABILITIES = "-all,+dac_read_search"
"""One more than the gateway keeps, as for the network role; with it the account reads this repository."""


def test_sockets_of_the_gateway_are_kept_while_its_user_has_too_many_descriptors_in_messages() -> None:
    sets = [f"--{name}={_CAPABILITIES}" for name in ("inh-caps", "ambient-caps", "bounding-set")]
    done = subprocess.run(
        [
            *("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", *sets),
            *(sys.executable, "-P", "-m", "tests.support.flooded_gateway"),
        ],
        env=os.environ | {"PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found == {"flood": "ETOOMANYREFS", "refused": True, "kept": True, "answers": [0, 0], "reports": []}
    assert "cannot be copied" not in done.stderr
