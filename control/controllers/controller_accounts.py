"""Creates missing ServiceAccounts of controllers in kube-system.

Upstream makes each when a controller first needs a token (controller-manager's clientbuilder). Controllers in the API server's
own process need no token and do not wait for this: their accounts are there to be seen, bound to roles and asked about.
"""

from __future__ import annotations

import contextlib
import logging

from control.controllers.identities import ACCOUNTS, NAMESPACE, POLICY_CHECKER
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError

log = logging.getLogger(__name__)
RETRY_SECONDS = 10.0


async def ensure(client: Client, name: str) -> None:
    """Create an account in kube-system unless it is there. Raises StatusError."""
    try:
        await client.get(core_v1.ServiceAccount, name, NAMESPACE)
    except StatusError as error:
        if not error.not_found:
            raise
        await _create(client, name)


async def _create(client: Client, name: str) -> None:
    try:
        await client.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name=name, namespace=NAMESPACE)))
    except StatusError as error:
        if not error.already_exists:
            raise


async def ensure_all(client: Client, clock: Clock = SYSTEM) -> None:
    """Create the accounts of all controllers, trying again where the server refuses or is away."""
    missing = {*ACCOUNTS.values(), POLICY_CHECKER}
    while missing:
        with contextlib.suppress(StatusError):  # creations say which of them exist
            missing -= {
                account.metadata.name for account in (await client.list(core_v1.ServiceAccount, NAMESPACE)).items
            }
        for name in sorted(missing):
            try:
                await _create(client, name)
                missing.discard(name)
            except StatusError as error:
                log.info("the service account %s of a controller was not created: %s", name, error)
        if missing:
            await clock.sleep(RETRY_SECONDS)
