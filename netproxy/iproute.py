"""Reads iproute2's lists as JSON, and reads and changes the node's own addresses."""

from __future__ import annotations

import json
from typing import Any

from kube.process import run


async def show(*argv: str) -> list[dict[str, Any]]:
    """Return what a command of iproute2 lists; nothing where it fails, as for a device that is not there."""
    done = await run(argv, check=False)
    found = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else []
    return [each for each in found if each]


async def global_addresses() -> tuple[str, ...]:
    """Return the node's addresses of global scope."""
    links = await show("ip", "-j", "address", "show", "scope", "global")
    return tuple(address["local"] for link in links for address in link.get("addr_info", ()) if address.get("local"))


async def add_local_address(address: str) -> None:
    """Make an address one of the node's own, on the loopback device; no error where it is already."""
    length = "128" if ":" in address else "32"
    await run(["ip", "link", "set", "lo", "up"])
    await run(["ip", "address", "replace", f"{address}/{length}", "dev", "lo", "scope", "host"])


async def remove_local_address(address: str) -> None:
    length = "128" if ":" in address else "32"
    await run(["ip", "address", "del", f"{address}/{length}", "dev", "lo"], check=False)
