"""Limits of the resources of all nodes for the Gateways of one namespace: ports, copies of certificates, Services.

First come, first served: a Gateway that is refused is considered again when another one of its namespace goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_GATEWAYS, MOST_PORTS, MOST_CERTIFICATES = 32, 64, 256


@dataclass(slots=True)
class _Namespace:
    admitted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Numbers of ports and certificates by Gateways."""
    waiting: dict[str, None] = field(default_factory=dict)


class NamespaceLimits:
    """Gateways with what they use, by namespace."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}

    def admit(self, key: str, ports: int, certificates: int) -> str:
        """Admit a Gateway with what it uses now; return the reason if its namespace uses too much, "" otherwise."""
        known = self._namespaces.setdefault(key.partition("/")[0], _Namespace())
        others = [used for each, used in known.admitted.items() if each != key]
        if len(others) >= MOST_GATEWAYS:
            problem = f"more than {MOST_GATEWAYS} Gateways"
        elif sum(used[0] for used in others) + ports > MOST_PORTS:
            problem = f"Gateways with more than {MOST_PORTS} ports"
        elif sum(used[1] for used in others) + certificates > MOST_CERTIFICATES:
            problem = f"Gateways with more than {MOST_CERTIFICATES} certificates"
        else:
            known.admitted[key] = ports, certificates
            known.waiting.pop(key, None)
            return ""
        known.admitted.pop(key, None)
        known.waiting[key] = None
        return f"The namespace has {problem}"

    def release(self, key: str) -> str | None:
        """Forget a Gateway; return another one that has waited longest for its place."""
        namespace = key.partition("/")[0]
        known = self._namespaces.get(namespace)
        if known is None:
            return None
        freed = known.admitted.pop(key, None) is not None
        known.waiting.pop(key, None)
        if not known.admitted and not known.waiting:
            del self._namespaces[namespace]
        return next(iter(known.waiting), None) if freed else None
