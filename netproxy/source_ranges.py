"""Source ranges of a load balancer, parsed once. No I/O.

A Service may have 99 000 of them, and its rules are computed for each port or endpoint that changes. So what is made of the
ranges is kept with them, and the plan of a Service keeps the object as long as the ranges are the same (model.py).
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from functools import cached_property

from kube.ip_addresses import Network, network
from netproxy import address_ranges


class SourceRanges(tuple[str, ...]):
    """CIDRs of one family. One that cannot be read allows nothing."""

    _prefixes: tuple[tuple[str, ...], dict[int, tuple[str, ...]]] | None = None
    _contained: tuple[tuple[str, ...], bool] | None = None

    @classmethod
    def of(cls, texts: tuple[str, ...]) -> SourceRanges:
        """Return the ranges themselves if they are some already."""
        return texts if isinstance(texts, cls) else cls(texts)

    @cached_property
    def canonical(self) -> tuple[str, ...]:
        """The ranges as CIDRs in the form in which iptables prints them."""
        return tuple(map(str, self._networks()))

    def prefixes(self, also: tuple[str, ...] = ()) -> dict[int, tuple[str, ...]]:
        """Return the first addresses of these and other ranges, as nft prints them, by prefix length; keep the last result."""
        if self._prefixes is None or self._prefixes[0] != also:
            found: dict[int, dict[str, None]] = {}
            for text in (*self, *also):
                with contextlib.suppress(ValueError):
                    length, first = address_ranges.prefix(text)
                    found.setdefault(length, {})[first] = None
            self._prefixes = also, {length: tuple(found[length]) for length in sorted(found, reverse=True)}
        return self._prefixes[1]

    def contain_any(self, addresses: tuple[str, ...]) -> bool:
        """Return whether any of the ranges has any of the addresses; the last result is kept."""
        if self._contained is None or self._contained[0] != addresses:
            found = [ipaddress.ip_address(each) for each in addresses]
            self._contained = addresses, any(each in range_ for range_ in self._networks() for each in found)
        return self._contained[1]

    def _networks(self) -> Iterator[Network]:
        for text in self:
            try:
                yield network(text)
            except ValueError:
                continue
