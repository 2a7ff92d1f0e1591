"""Renews the proxy's own client certificate before it expires.

On a machine that joined, `wherry join` had it signed with the bootstrap token; from then on the proxy requests the next
one with the one it has. A kubeconfig that holds its certificate itself is left alone: whoever wrote it renews it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kube.client import Client
from kube.clock import Clock
from kube.kubeconfig import Access
from kube.transport import HttpsTransport

if TYPE_CHECKING:
    from kube.certificates import Rotation


def rotation(access: Access, transport: HttpsTransport, clock: Clock) -> Rotation | None:
    """Return what keeps the kubeconfig's certificate fresh, None if nothing has to."""
    if not access.certificate_file:
        return None
    # The cryptography behind it costs memory that most proxies need not spend.
    from kube import pki
    from kube.certificates import PROXY, PROXY_USER, Rotation

    file = Path(access.certificate_file)
    if file.name != PROXY.file:
        return None
    return Rotation(
        PROXY,
        file.parent,
        Client(transport),
        lambda key: pki.new_request(key, PROXY_USER),
        transport.reconnect,
        clock=clock,
    )
