"""Objects that are the same in every new cluster, but for their UIDs and times: roles, flow control, APIServices, accounts.

The API server creates hundreds of them in an empty store, which is a third of a start. Those of the process's first
clusters, as they are before a test changes anything, are given to later ones. Their servers find them, as after a restart,
and create what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from control.storage.memory import MemoryStore
from control.storage.store import Item
from kube.clock import format_time
from kube.uid import new_uid

FOLDERS = (
    "/registry/clusterroles/",
    "/registry/clusterrolebindings/",
    "/registry/roles/",
    "/registry/rolebindings/",
    "/registry/flowschemas/",
    "/registry/prioritylevelconfigurations/",
    "/registry/priorityclasses/",
    "/registry/apiregistration.k8s.io/apiservices/",
    "/registry/serviceaccounts/kube-system/",
)
_UID = re.compile(rb'"uid":"[0-9a-f-]{36}"')
_TIME = re.compile(rb'"(creationTimestamp|time|lastTransitionTime)":"[^"]{20}"')
_kept: list[Item] = []
"""Of the first cluster; at most so many as the API server creates."""


def keep(store: MemoryStore) -> None:
    """Keep the objects of a cluster that nobody has used yet, if it has more than those that are kept.

    The first cluster still creates accounts when it is ready; a later one, which is given the others, has all of them by then.
    """
    found = [item for item in store.state()[0] if item.key.startswith(FOLDERS)]
    if len(found) > len(_kept):
        _kept[:] = found  # all at once: clusters run in several threads


def load(store: MemoryStore, now: datetime) -> None:
    """Give an empty store the kept objects, as if they were created now."""
    if items := list(_kept):
        store.load(_created(items, format_time(now).encode()), len(items), {})


def _created(items: Sequence[Item], now: bytes) -> list[Item]:
    moment = rb'"\1":"' + now + b'"'
    return [
        Item(item.key, _TIME.sub(moment, _UID.sub(b'"uid":"' + new_uid().encode() + b'"', item.value)), number, number)
        for number, item in enumerate(items, 1)
    ]
