"""Hostnames of listeners, routes and requests: matches, intersections, and which of several matches is more specific.

A hostname is lower case, without port and final dot. `*.example.com` stands for names with one or more labels before
`.example.com`; in an Ingress for names with exactly one. An empty hostname stands for every name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WILDCARD = "*."


def matches(pattern: str, host: str, *, single_label: bool = False) -> bool:
    """Return whether a hostname of a listener or route includes a request's host."""
    if not pattern or pattern == host:
        return True
    if not pattern.startswith(WILDCARD):
        return False
    suffix = pattern[1:]
    before = host[: -len(suffix)] if host.endswith(suffix) else ""
    return bool(before) and not (single_label and "." in before)


def specificity(pattern: str) -> tuple[int, int]:
    """Return a key by which the more specific of the hostnames that match a host is the greater.

    Names without a wildcard come first, then the longest.
    """
    return (0 if pattern.startswith(WILDCARD) else len(pattern), len(pattern))


def most_specific(patterns: Iterable[str], host: str) -> str | None:
    """Return the hostname that a host belongs to, None if it matches none."""
    return max((each for each in patterns if matches(each, host)), key=specificity, default=None)


def intersection(one: str, other: str) -> str | None:
    """Return the hostname that stands for the names in both, None if there are none."""
    for pattern, name in ((one, other), (other, one)):
        if not pattern or pattern == name:
            return name
        if pattern.startswith(WILDCARD) and name.endswith(pattern[1:]) and len(name) > len(pattern) - 1:
            return name
    return None


def parent(host: str) -> str:
    """Return the wildcard, of one label, that includes a hostname."""
    return WILDCARD + host.partition(".")[2]


def common(listener: str, hostnames: Sequence[str]) -> tuple[str, ...] | None:
    """Return the hostnames of a route (none: any) at a listener; () is any, None that there are none."""
    if not hostnames:
        return (listener,) if listener else ()
    if not listener:
        return tuple(dict.fromkeys(hostnames))
    found = (intersection(listener, each) for each in hostnames)
    return tuple(dict.fromkeys(each for each in found if each is not None)) or None
