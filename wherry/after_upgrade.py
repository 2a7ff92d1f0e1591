"""Restarts this machine's daemons after an upgrade of the programs: `python -P -m wherry.after_upgrade`.

The Debian package calls it. Only daemons that run are restarted: one that the administrator stopped stays stopped. Containers
keep running, and containerd does too under systemd, because it is no part of the package.
"""

from __future__ import annotations

import asyncio
import sys

from kube.process import CommandError
from wherry import daemons, os_errors, settings, units
from wherry.errors import WherryError
from wherry.settings import Settings
from wherry.terminal import errors


async def restart_running(saved: Settings) -> list[str]:
    """Restart the roles that run and return their names, without waiting until they are ready."""
    running = [name for name, pid in (await daemons.running(saved)).items() if pid and name != "containerd"]
    if not running:
        return []
    if units.uses_systemd(saved):
        await units.restart(running)
    else:
        # The supervisor runs the old code too, and it has one plan for all daemons.
        await daemons.stop(saved)
        await daemons.start(saved)
    return running


def main(prefix: str = "/") -> int:
    try:
        saved = settings.load(prefix)
        restarted = asyncio.run(restart_running(saved)) if saved is not None else []
    except (WherryError, CommandError, OSError) as error:
        errors.print(f"wherry: {os_errors.text(error)}", soft_wrap=True)
        return 1
    if restarted:
        print(f"wherry: restarted {', '.join(restarted)}; wherry up updates the cluster's roles and configuration")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
