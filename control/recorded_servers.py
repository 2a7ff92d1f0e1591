"""ConfigMap of the names and addresses that API servers have or had: kube-system/wherry-api-servers, one a line.

Kubeconfigs name a server long after it is gone, so its address must not be given to a node without a person's consent. Each API
server adds those of its certificate and of all servers that run. They are in the store, so they outlive every server, and are
removed by administrators alone. The approver of nodes' serving certificates reads them.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from kube import pki
from kube.json_object import Object
from kube.node_names import reserved

log = logging.getLogger(__name__)

NAMESPACE, NAME, KEY = "kube-system", "wherry-api-servers", "names"
CONFIG_MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE}}
MOST = 256
"""Names that are recorded; the oldest are dropped."""


def names(data: Mapping[str, str]) -> list[str]:
    """Return what a ConfigMap's data records, the oldest first."""
    return data.get(KEY, "").split()


def extended(present: Object | None, found: Iterable[str]) -> Object | None:
    """Return the ConfigMap with more names, None if it has them all."""
    data: dict[str, str] = (present or {}).get("data") or {}
    before = names(data)
    wanted = list(dict.fromkeys((*before, *found)))[-MOST:]
    if wanted == before:
        return None
    return {**(present or CONFIG_MAP), "data": {**data, KEY: "".join(f"{name}\n" for name in wanted)}}


def of_certificate(file: Path, cluster_domain: str) -> list[str]:
    """Return the names and addresses in a server's certificate that a node could have, in order."""
    try:
        found = pki.names_of(pki.decode_certificate(file.read_bytes()))
    except (OSError, pki.PKIError) as error:
        log.warning("the names in %s are not recorded: %s", file, error)
        return []
    return sorted(name for each in found if not _nobodys(name := str(each.value), cluster_domain))


def _nobodys(name: str, cluster_domain: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return bool(reserved(name, cluster_domain))
