"""Resolves CDI device names to fields of CRI, for runtimes that do not resolve them (containerd before 1.7, and 1.7 by
default).

A name is vendor.com/class=device; the specifications are JSON or YAML files in /etc/cdi and /var/run/cdi, the latter winning
(Container Device Interface, SPEC.md). Environment, device nodes and mounts have an equivalent in CRI; hooks have none, and a
device with hooks is refused instead of allocated in part.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.files.decoding import DamagedFileError, decode_yaml, text_of
from agent.managers.run_options import RunOptions
from cri.messages import Device, Mount

FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))


class CDIError(Exception):
    """A device cannot be resolved."""


def runtime_knows(name: str, version: str, info: Mapping[str, str] | None = None) -> bool:
    """Return whether a runtime resolves CDI names itself, by its name and version; `info` is its verbose status."""
    if name != "containerd":
        return True
    with contextlib.suppress(ValueError, AttributeError):
        enabled = json.loads((info or {}).get("config", "{}")).get("enableCDI")
        if isinstance(enabled, bool):
            return enabled  # off by default in 1.7, on by default in 2
    found = re.match(r"v?([0-9]+)\.([0-9]+)", version)
    return found is None or (int(found[1]), int(found[2])) >= (2, 0)


def resolve(names: Sequence[str], folders: Iterable[Path] = FOLDERS) -> RunOptions:
    """Return what a container needs for these devices. Raise CDIError."""
    known = _devices(folders)
    missing = [name for name in names if name not in known]
    if missing:
        raise CDIError(f"unresolvable CDI devices {', '.join(missing)}")
    env: dict[str, str] = {}
    mounts: list[Mount] = []
    devices: list[Device] = []
    seen: set[int] = set()
    for name in names:
        for edits in known[name]:
            if id(edits) in seen:
                continue  # a specification's own edits, once for all of its devices
            seen.add(id(edits))
            if not isinstance(edits, dict):
                raise CDIError(f"CDI device {name}: its edits are no object")
            if edits.get("hooks"):
                raise CDIError(f"CDI device {name} needs hooks, which cannot be passed to this container runtime")
            try:
                env.update(text.partition("=")[::2] for text in edits.get("env") or ())
                mounts += [_mount(mount) for mount in edits.get("mounts") or ()]
                devices += [_device(node) for node in edits.get("deviceNodes") or ()]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise CDIError(f"CDI device {name}: {error!r}") from error
    return RunOptions(env=env, mounts=mounts, devices=devices)


def _devices(folders: Iterable[Path]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the edits of every device by its qualified name."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.json")) + sorted(folder.glob("*.yaml")):
            try:
                spec = decode_yaml(text_of(file))
                common = spec.get("containerEdits") or {}
                for device in spec["devices"]:
                    found[f"{spec['kind']}={device['name']}"] = [common, device.get("containerEdits") or {}]
            except (OSError, DamagedFileError, AttributeError, KeyError, TypeError) as error:
                raise CDIError(f"CDI specification {file}: {error}") from error
    return found


def _mount(mount: Mapping[str, Any]) -> Mount:
    options = mount.get("options") or ()
    return Mount(container_path=mount["containerPath"], host_path=mount["hostPath"], readonly="ro" in options)


def _device(node: Mapping[str, Any]) -> Device:
    path = node["path"]
    return Device(
        container_path=path, host_path=node.get("hostPath") or path, permissions=node.get("permissions") or "rwm"
    )
