"""Publish a ConfigMap that API servers built from OpenShift's sources mount in each pod, as their controllers do.

`python -m tests.conformance.bundles KUBECONFIG` runs until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from kube import kubeconfig
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.transport import HttpsTransport

NAME = "openshift-service-ca.crt"


async def run(path: str) -> None:
    client = Client(HttpsTransport(kubeconfig.load(path)))
    added: asyncio.Queue[str] = asyncio.Queue()

    def changed(change: Change[core_v1.Namespace]) -> None:
        if change.type == "ADDED":
            added.put_nowait(change.new.metadata.name or "")

    namespaces = Informer(client, core_v1.Namespace)
    namespaces.subscribe(changed)
    async with asyncio.TaskGroup() as group:
        group.create_task(namespaces.run())
        while True:
            metadata = meta_v1.ObjectMeta(name=NAME, namespace=await added.get())
            with contextlib.suppress(StatusError):  # it is there already, or the namespace is gone
                await client.create(core_v1.ConfigMap(metadata=metadata, data={"service-ca.crt": ""}))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
