"""kubectl commands of a soak that are repeated while servers are away, and a custom resource that cannot be listed."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cluster import Cluster, eventually
from tests.support.custom_resources import GROUP, definition, version

ANSWER_SECONDS = 300.0
"""Time that a command is retried while daemons are away: several faults may follow each other."""
KIND, NAME = "Broken", f"brokens.{GROUP}"


def insist(made: Cluster, *arguments: str, input: str | None = None) -> str:
    """Run a kubectl command until it succeeds; return what it printed."""

    def done() -> list[str]:
        result = made.kubectl(*arguments, "--request-timeout=20s", input=input, check=False)
        assert result.returncode == 0, result.stderr
        return [result.stdout]

    return eventually(done, arguments[0], ANSWER_SECONDS, every=0.5)[0]


def apply(made: Cluster, namespace: str, *objects: dict[str, Any]) -> None:
    """Apply objects until it succeeds."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    insist(made, "apply", "-n", namespace, "-f", "-", input=manifest)


class Unlistable:
    """A custom resource of two versions whose conversion webhook is dead: informers of the preferred one cannot list it."""

    def __init__(self, made: Cluster, namespace: str) -> None:
        self._made, self._namespace = made, namespace

    def create(self) -> None:
        """Create the definition and an object of the version that is not preferred."""
        wanted = definition(KIND, version("v1"), version("v2", storage=False))
        client = {"url": "https://127.0.0.1:9/convert"}
        webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
        wanted["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        apply(self._made, self._namespace, wanted)
        metadata = {"name": "broken", "namespace": self._namespace}
        api_version = f"{GROUP}/v1"
        body = {"apiVersion": api_version, "kind": KIND, "metadata": metadata, "spec": {"cronSpec": "*"}}
        apply(self._made, self._namespace, body)

    def delete(self) -> None:
        """Delete the definition, and with it the object; return once both are gone."""
        insist(self._made, "delete", "crd", NAME, "--ignore-not-found", "--timeout=60s")
