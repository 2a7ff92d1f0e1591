"""A kopf operator for tests: it makes a ConfigMap for every Greeting, follows its changes, and cleans up behind it.

Run in a process of its own: `kopf run tests/support/operator.py --standalone --all-namespaces`.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from typing import Any

import kopf
import yaml

GROUP, PLURAL = "greet.example.com", "greetings"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = True
    settings.persistence.finalizer = "greet.example.com/operator"


def call(method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
    """Ask the API server as the kubeconfig says (kopf's own client is not for operators)."""
    with open(os.environ["KUBECONFIG"]) as file:
        config = yaml.safe_load(file)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(cluster["server"] + path, data, {"Content-Type": kind}, method=method)
    with urllib.request.urlopen(request, context=context) as answer:
        return json.loads(answer.read())


@kopf.on.create(GROUP, "v1", PLURAL)
def created(spec: kopf.Spec, name: str, namespace: str, body: kopf.Body, **_: Any) -> dict[str, Any]:
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"text": f"Hello {spec['who']}"},
    }
    kopf.adopt(made, owner=body)
    call("POST", f"/api/v1/namespaces/{namespace}/configmaps", made)
    kopf.info(body, reason="Greeted", message=f"said hello to {spec['who']}")
    return {"greeted": spec["who"]}


@kopf.on.field(GROUP, "v1", PLURAL, field="spec.who")
def renamed(old: Any, new: str, name: str, namespace: str, patch: kopf.Patch, **_: Any) -> None:
    if old is None:
        return
    data = {"data": {"text": f"Hello {new}"}}
    call("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/{name}", data, "application/merge-patch+json")
    patch.status["phase"] = f"renamed from {old}"


@kopf.on.delete(GROUP, "v1", PLURAL)
def deleted(name: str, namespace: str, **_: Any) -> None:
    call("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/{name}")
