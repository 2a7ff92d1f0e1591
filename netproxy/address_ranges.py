"""Address ranges that policies' ipBlocks and load balancers' source ranges allow. No I/O.

Ranges are pairs of integers: one pass over the sorted exceptions of a block leaves what it allows, one over all blocks joins
that. An address that one block excepts stays allowed by another block that has it (API reference, IPBlock). A hole in a range
leaves two ranges; as prefixes the same would be up to 128. Texts are made of the integers, so nothing else of what the API
says reaches nft.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Generator, Iterable, Iterator, Sequence

from kube.ip_addresses import network
from netproxy.slices import run_to_end

Range = tuple[int, int]
"""First and last address."""
BITS = {4: 32, 6: 128}
SLICE = 100
"""Ranges that are read, or written as text, between suspensions."""
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def allowed(blocks: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return what blocks, each a CIDR and its exceptions, allow: ranges as nft prints them, with a gap between any two.

    A block of which any part cannot be read allows nothing.
    """
    return run_to_end(allowed_in_slices(blocks))


def allowed_in_slices(blocks: Iterable[tuple[str, Sequence[str]]]) -> Generator[None, None, tuple[str, ...]]:
    """Do as `allowed`, in slices."""
    found: dict[int, list[Range]] = {4: [], 6: []}
    count = itertools.count(1)
    for cidr, exceptions in blocks:
        try:
            family, whole = _bounds(cidr)
            holes: list[Range] = []
            for text in exceptions:
                other, hole = _bounds(text)
                if other == family:
                    holes.append(hole)
                if not next(count) % SLICE:
                    yield
        except ValueError:
            continue
        found[family] += _without(whole, holes)
        if not next(count) % SLICE:
            yield
    texts: list[str] = []
    for family, ranges in found.items():
        for each in _joined(ranges):
            texts.append(_text(family, each))
            if not len(texts) % SLICE:
                yield
    return tuple(texts)


def prefix(cidr: str) -> tuple[int, str]:
    """Return the length of a prefix and its first address as nft prints it; ValueError if it cannot be read."""
    read = network(cidr)
    return read.prefixlen, _address(read.version, int(read.network_address))


def mask(family: int, length: int) -> str:
    """Return the mask of a prefix length."""
    return _address(family, (1 << BITS[family]) - (1 << BITS[family] - length))


def _bounds(cidr: str) -> tuple[int, Range]:
    read = network(cidr)
    return read.version, (int(read.network_address), int(read.broadcast_address))


def _without(whole: Range, holes: Iterable[Range]) -> Iterator[Range]:
    first, last = whole
    for low, high in _joined(holes):
        if first < low <= last:
            yield first, low - 1
        if low <= last:
            first = max(first, high + 1)
    if first <= last:
        yield first, last


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in order, those that overlap or touch as one."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


def _text(family: int, bounds: Range) -> str:
    first, last = bounds
    size = last - first + 1
    if size == 1:
        return _address(family, first)
    if size & (size - 1) == 0 and first % size == 0:
        return f"{_address(family, first)}/{BITS[family] + 1 - size.bit_length()}"
    return f"{_address(family, first)}-{_address(family, last)}"


def _address(family: int, number: int) -> str:
    """Return an address as nft prints it, which ipaddress does not where an IPv4 address is inside."""
    return socket.inet_ntop(_FAMILIES[family], number.to_bytes(BITS[family] // 8))
