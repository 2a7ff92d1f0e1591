"""Rows of docs/troubleshooting.md as tests: a symptom is produced, the row's command finds the cause, its fix mends it.

Everything is typed into a reader's shell (typed_pages.py). A message is that of the row, with any text in place of `…`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import messages
from tests.support.cluster import BUSYBOX
from tests.support.pages import Shell

PAGE = Path(__file__).resolve().parents[2] / "docs/troubleshooting.md"
UNTESTED, PRODUCED = "†", "‡"
"""Marks at the end of a row: no test produces its symptom, or one does, but does not type the row's command."""


@dataclass(frozen=True)
class Row:
    """A row of the page."""

    message: str
    commands: tuple[str, ...]
    mark: str
    """UNTESTED, PRODUCED, or empty."""

    @property
    def tested(self) -> bool:
        return not self.mark

    def pattern(self) -> str:
        """Return the message as a regular expression."""
        text = self.message.strip("`").strip()
        return ".*?".join(re.escape(part) for part in text.split(messages.VALUE))


@dataclass(frozen=True)
class Symptom:
    """Commands that produce and mend a row's symptom."""

    produce: str
    finds: str
    """Text that the row's command shows besides: the cause."""
    fix: str
    mended: tuple[str, str]
    """A command and the text that it shows afterwards."""
    seen: str = ""
    """Command that shows the message, if it is not the row's."""
    values: dict[str, str] = field(default_factory=dict)
    """Placeholder of the row's command -> its value."""
    command: str = ""
    """Replacement of the row's command, which is abbreviated."""
    alone: bool = False
    """True if it would disturb others while it lasts."""

    def typed(self, row: Row, prefix: str) -> str:
        """Return the row's command as one types it on a machine whose files are below a prefix."""
        command = self.command or row.commands[0]
        for name, value in self.values.items():
            command = command.replace(name, value)
        return re.sub(r" /(?=etc/wherry|var/lib/wherry)", f" {prefix}/", command)


def rows() -> dict[str, Row]:
    """Return the rows of all tables by their messages."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) == 4 and cells[0].startswith("`"):
            commands = tuple(re.findall(r"`([^`]+)`", cells[1]))
            found[cells[0].strip("`").strip()] = Row(
                cells[0], commands, cells[3][-1] if cells[3][-1] in UNTESTED + PRODUCED else ""
            )
    return found


GATEWAY_API = {"apiVersion": "gateway.networking.k8s.io/v1"}
Step = tuple[str, str]
"""A command, and the text that it has to show."""


def once(shell: Shell, command: str) -> str:
    """Run a command that must succeed."""
    status, printed = shell.run(command)
    assert status == 0, f"$ {command}\nended with {status}:\n{printed}"
    return printed


def shown(shell: Shell, wanted: dict[str, Step], seconds: float = 60) -> dict[str, str]:
    """Run commands again until each shows its text; return for each that does not what it shows.

    All are waited for together, so that this takes as long as the slowest.
    """
    missing = dict.fromkeys(wanted, "")
    end = time.monotonic() + seconds
    while missing and time.monotonic() < end:
        for name in list(missing):
            command, pattern = wanted[name]
            _, printed = shell.run(command)
            missing[name] = f"$ {command}\n{printed[-2000:]}\nwithout {pattern}"
            if re.search(pattern, printed, re.S):
                del missing[name]
        if missing:
            time.sleep(0.5)
    return missing


def walked(shell: Shell, symptoms: dict[str, Symptom], prefix: str) -> dict[str, str]:
    """Produce, find and mend symptoms at the same time; return what went wrong by message."""
    table, wrong = rows(), {}
    commands = {message: symptom.typed(table[message.strip()], prefix) for message, symptom in symptoms.items()}
    left = dict(symptoms)

    def step(found: dict[str, str]) -> None:
        wrong.update(found)
        for message in found:
            del left[message]

    def each(action: Callable[[str, Symptom], str]) -> dict[str, str]:
        done = {message: shell.run(action(message, symptom)) for message, symptom in left.items()}
        return {message: f"ended with {status}: {text}" for message, (status, text) in done.items() if status}

    step(each(lambda _, symptom: symptom.produce))
    step(shown(shell, {m: (s.seen or commands[m], table[m.strip()].pattern()) for m, s in left.items()}))
    step(shown(shell, {m: (commands[m], s.finds) for m, s in left.items()}))
    step(each(lambda _, symptom: symptom.fix))
    step(shown(shell, {m: s.mended for m, s in left.items()}))
    return wrong


def apply(*objects: dict[str, Any]) -> str:
    """Return the command that applies objects."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return f"kubectl apply -f - <<'END'\n{text}\nEND"


def pod(name: str, script: str = "sleep 1000", image: str = BUSYBOX, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": image, "command": ["sh", "-c", script], **spec.pop("container", {})}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def load_balancer(name: str, port: int, **spec: Any) -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": port}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def claim(name: str, storage_class: str) -> dict[str, Any]:
    resources = {"requests": {"storage": "1Mi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": resources}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def gateway(name: str, namespace: str = "default", **listener: Any) -> dict[str, Any]:
    listener = {"name": "web", "protocol": "HTTP", "port": 80, **listener}
    spec = {"gatewayClassName": "wherry", "listeners": [listener]}
    return {**GATEWAY_API, "kind": "Gateway", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def route(name: str, parent: dict[str, Any], backend: dict[str, Any] | None = None) -> dict[str, Any]:
    spec = {"parentRefs": [parent], "rules": [{"backendRefs": [backend or {"name": "kubernetes", "port": 443}]}]}
    return {**GATEWAY_API, "kind": "HTTPRoute", "metadata": {"name": name}, "spec": spec}


def grant(namespace: str) -> dict[str, Any]:
    """Return the permission of HTTPRoutes in default to name Services of a namespace."""
    source = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "default"}
    spec = {"from": [source], "to": [{"group": "", "kind": "Service"}]}
    return {**GATEWAY_API, "kind": "ReferenceGrant", "metadata": {"name": "g", "namespace": namespace}, "spec": spec}
