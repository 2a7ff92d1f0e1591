"""Calls of the API server from a pod, with its service account. Runs in pods: only the standard library is imported."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NAMESPACE = "SONOBUOY_NS"


def call(method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
    """Send a request and return the decoded response. Raise urllib.error.HTTPError."""
    address = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data=data, method=method)
    request.add_header("Authorization", f"Bearer {(_ACCOUNT / 'token').read_text()}")
    request.add_header("Content-Type", kind)
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=30, context=context) as response:
        return json.load(response)


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
