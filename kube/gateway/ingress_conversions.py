"""Ingresses of Wherry's classes with their converted rules, which are cached until an Ingress, or what it refers to, changes.

The oldest Ingresses of a namespace are converted, up to a number of paths: users decide how many there are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from kube.api import networking_v1
from kube.gateway import ingress_gateway, ingresses
from kube.gateway.conversions import Conversions
from kube.gateway.ingresses import IngressRules
from kube.gateway.view import View
from kube.informer import Informer
from kube.object_names import key_of, namespace_of

INGRESSES_PER_ITERATION = 64
"""Ingresses whose rules are looked up between two iterations of the event loop."""
MOST_CONVERTED = 2 * ingress_gateway.MOST_MATCHES
"""Paths of Ingresses of one namespace, the oldest first, that are converted to find out which of them are served."""
STOPPED = ingresses.not_served("the Ingress takes too long to convert")
TOO_MANY_PATHS = ingresses.not_served(
    f"the Ingresses of a namespace have more than {ingress_gateway.MOST_MATCHES} paths"
)


class IngressConversions:
    """Converts Ingresses. `again` is called when one can be converted that had to wait."""

    def __init__(
        self,
        classes: Informer[networking_v1.IngressClass],
        informer: Informer[networking_v1.Ingress],
        view: View,
        again: Callable[[], None],
    ) -> None:
        self._classes, self._informer, self._view = classes, informer, view
        self._rules = Conversions(STOPPED, lambda key: again())
        self._paths: dict[str, int] = {}
        """Numbers of paths of the Ingresses by key."""

    def __len__(self) -> int:
        return len(self._rules)

    def served(self) -> list[networking_v1.Ingress]:
        """Return the Ingresses of Wherry's classes."""
        classes = {each.metadata.name or "": each for each in self._classes.list()}
        return [
            each
            for each in self._informer.list()
            if each.metadata.deletion_timestamp is None and ingresses.is_ours(each, classes)
        ]

    def serves(self, ingress: networking_v1.Ingress) -> bool:
        """Return whether an Ingress is of one of Wherry's classes."""
        return ingresses.is_ours(ingress, {each.metadata.name or "": each for each in self._classes.list()})

    async def converted(self) -> list[tuple[networking_v1.Ingress, IngressRules]]:
        """Return the Ingresses of Wherry's classes with their rules, the oldest first."""
        found = []
        paths = Counter[str]()
        for number, key in enumerate(map(key_of, sorted(self.served(), key=ingresses.age))):
            if number % INGRESSES_PER_ITERATION == INGRESSES_PER_ITERATION - 1:
                await asyncio.sleep(0)
            ingress = self._informer.get(key)
            if ingress is not None:
                found.append((ingress, await self._rules_of(key, ingress, paths)))
        return found

    def forget(self, key: str) -> None:
        """Convert an Ingress again: it, or what it refers to, has changed."""
        self._rules.forget(key)
        self._paths.pop(key, None)

    async def _rules_of(self, key: str, ingress: networking_v1.Ingress, older: Counter[str]) -> IngressRules:
        """Return the rules of an Ingress, the newest one of its key, unless those of its namespace have too many paths.

        `older` counts the paths of the older ones.
        """
        paths = self._paths.get(key)
        if paths is None:
            paths = self._paths[key] = ingresses.paths(ingress)
        if paths <= ingresses.MOST_PATHS:
            older[namespace_of(ingress)] += paths
            if older[namespace_of(ingress)] > MOST_CONVERTED:
                return TOO_MANY_PATHS
        return await self._rules.get(key, lambda: ingresses.convert_in_steps(ingress, self._view))
