"""An installation below a folder whose daemons do not run, and commands on it in a network namespace without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from wherry import configuration, file_modes
from wherry.option_checks import complete
from wherry.settings import Settings

ADDRESS = "192.0.2.1"
ALONE = (
    f"ip link set lo up && ip link add v0 type veth peer v1 && ip address add {ADDRESS}/24 dev v0 && ip link set v0 up"
)


def install(prefix: Path, **options: object) -> Settings:
    """Write what `wherry up` writes before it starts anything."""
    settings = complete(Settings(prefix=str(prefix), node_name="n1", **options), ADDRESS)  # type: ignore[arg-type]
    settings.save()
    file_modes.make_folders(settings)
    configuration.write_all(settings)
    return settings


def wherry(*arguments: str | Path, setup: str = "true", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command after a line of shell; its network and its mounts are those of this command alone."""
    script = f'{ALONE} && {{ {setup}; }} && exec "$@"'
    argv = ["unshare", "--net", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "wherry.main"]
    return subprocess.run(
        [*argv, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "80", **variables},
    )
