"""pyroute2's message classes, without the rest of the package."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from netproxy import rtnetlink_requests as requests
loaded = [name for name in sys.modules if name.startswith("pyroute2")]
assert not any("nftables" in name or "ndb" in name or "iproute" in name for name in loaded), loaded
assert len(loaded) < 30 and "multiprocessing" not in sys.modules, loaded
assert len(requests.replace_route("10.244.1.0/24", 3, 87, via="10.9.0.2")) == 52
import pyroute2
assert pyroute2.IPRoute and requests.delete_link(1)
"""


def test_only_the_messages_are_imported_and_the_package_stays_usable() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
