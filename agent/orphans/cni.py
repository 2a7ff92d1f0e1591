"""CNI DEL for a sandbox that the runtime has forgotten: gives its addresses back, and takes port rules and links away.

DEL gets the parameters of ADD that libcni stored; if it stored none, the network as it is configured now.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agent.config import OwnContainerd
from agent.files.decoding import DamagedFileError, decode_json
from kube.process import CommandError, run

log = logging.getLogger(__name__)

_SECONDS = 30.0
_INTERFACE = "eth0"
_LOOPBACK = "cni-loopback"
"""The name of containerd's own network list with nothing but lo, which goes with its namespace."""


async def delete(of: OwnContainerd, sandbox_id: str) -> None:
    """Undo ADD for a sandbox; raises CommandError, OSError, ValueError."""
    found = await asyncio.to_thread(lambda: dict(results(of, sandbox_id)))
    remembered = next((r for p, r in found.items() if not p.name.startswith(_LOOPBACK)), None)
    network = await asyncio.to_thread(_network, of, remembered)
    namespace = await asyncio.to_thread(_existing, namespace_of(remembered or {}))
    for plugin in reversed(network["plugins"]):
        await _plugin(of, sandbox_id, request(plugin, network, remembered), namespace)
    for path in found:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _network(of: OwnContainerd, remembered: dict[str, Any] | None) -> dict[str, Any]:
    """Return the network list that a sandbox was added to, the current one if that is not known."""
    if remembered is None:
        return decode_json(of.network, dict[str, Any])
    return msgspec.json.decode(base64.b64decode(remembered["config"]), type=dict[str, Any])


def sandboxes_in(of: OwnContainerd, namespace: str) -> list[str]:
    """Return the IDs of sandboxes that libcni has stored for a network namespace (its path)."""
    return sorted({result["containerId"] for _, result in results(of, "") if namespace_of(result) == namespace})


def results(of: OwnContainerd, sandbox_id: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield libcni's records of a sandbox's interfaces, or of all ("")."""
    for path in of.results.glob(f"*-{sandbox_id}-*" if sandbox_id else "*"):
        with contextlib.suppress(OSError, DamagedFileError):
            result = decode_json(path, dict[str, Any])
            if "containerId" in result and sandbox_id in ("", result["containerId"]):
                yield path, result


def namespace_of(result: dict[str, Any]) -> str:
    """Return the path of the namespace that a cached ADD made interfaces in; "" where it has none."""
    found = (i.get("sandbox", "") for i in (result.get("result") or {}).get("interfaces", ()))
    return next(filter(None, found), "")


def _existing(path: str) -> str:
    return path if os.path.exists(path) else ""


def request(plugin: dict[str, Any], network: dict[str, Any], remembered: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a plugin of a list is given on its standard input (CNI specification, section 3)."""
    request = {**plugin, "name": network["name"], "cniVersion": network["cniVersion"]}
    capabilities = request.pop("capabilities", {})
    if remembered:
        given = remembered.get("capabilityArgs") or {}
        request["runtimeConfig"] = {name: value for name, value in given.items() if capabilities.get(name)}
        request["prevResult"] = remembered["result"]
    return request


def _program(of: OwnContainerd, name: str) -> Path:
    """Return the first program of a plugin's name, as libcni finds it."""
    found = [folder / name for folder in of.plugins]
    return next((path for path in found if path.is_file()), found[0])


async def _plugin(of: OwnContainerd, sandbox_id: str, request: dict[str, Any], namespace: str) -> None:
    environment = {
        "CNI_COMMAND": "DEL",
        "CNI_CONTAINERID": sandbox_id,
        "CNI_NETNS": namespace,
        "CNI_IFNAME": _INTERFACE,
        "CNI_PATH": ":".join(map(str, of.plugins)),
    }
    program = str(_program(of, request["type"]))
    try:
        await run([program], input=json.dumps(request), env=environment, timeout=_SECONDS)
    except CommandError as error:
        # A plugin writes its error to standard output.
        output = error.result.stdout.strip() if error.result else ""
        raise CommandError([program], f"{error}: {output}") from error
