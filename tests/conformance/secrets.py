"""Name a token's Secret in each service account, as clusters did up to v1.23: upstream's older tests wait for that.

`python -m tests.conformance.secrets KUBECONFIG` runs until it is ended.
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

ACCOUNT = "kubernetes.io/service-account.name"


async def run(path: str) -> None:
    client = Client(HttpsTransport(kubeconfig.load(path)))
    made: asyncio.Queue[core_v1.ServiceAccount] = asyncio.Queue()

    def changed(change: Change[core_v1.ServiceAccount]) -> None:
        if change.type == "ADDED" and not change.new.secrets:
            made.put_nowait(change.new)

    accounts = Informer(client, core_v1.ServiceAccount)
    accounts.subscribe(changed)
    async with asyncio.TaskGroup() as group:
        group.create_task(accounts.run())
        while True:
            account = (await made.get()).metadata
            with contextlib.suppress(StatusError):  # the account is gone, or its namespace is
                await name_one(client, account.name or "", account.namespace or "")


async def name_one(client: Client, account: str, namespace: str) -> None:
    metadata = meta_v1.ObjectMeta(name=f"{account}-token", namespace=namespace, annotations={ACCOUNT: account})
    with contextlib.suppress(StatusError):  # it is there already
        await client.create(core_v1.Secret(metadata=metadata, type="kubernetes.io/service-account-token"))
    await client.patch(core_v1.ServiceAccount, account, namespace, {"secrets": [{"name": f"{account}-token"}]})


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
