"""Types for the addresses that CNI plugins assigned to this node's pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Given(NamedTuple):
    """The addresses of a pod."""

    pod: str
    """Its namespace and name, "namespace/name"."""
    addresses: tuple[str, ...]


GivenAddresses = Mapping[str, Given]
"""By UID; "" stands for all pods whose runtime does not name them."""
