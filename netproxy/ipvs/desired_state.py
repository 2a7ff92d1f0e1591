"""Desired state of all Services in the kernel, updated incrementally: a change costs what the Service has. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from netproxy.ipvs.state import Server, ServerConfig, State


class DesiredState:
    """The states of all Services, and their sum; the first to name a virtual server has it."""

    def __init__(self) -> None:
        self.total = State()
        self._states: dict[str, State] = {}
        self._claims: dict[Server, dict[str, ServerConfig]] = {}
        self._counts: Counter[object] = Counter()
        """The number of Services that have an entry or an address."""

    def change(self, changes: Mapping[str, State]) -> tuple[State, State]:
        """Store new states of Services; return what was desired before and now, of everything that they touch."""
        touched = State()
        for key, new in changes.items():
            for each in (self._states.get(key, State()), new):
                touched.servers |= each.servers
                touched.entries |= each.entries
                touched.addresses |= each.addresses
        before = self._part(touched)
        for key, new in changes.items():
            self._put(key, new)
        return before, self._part(touched)

    def _part(self, touched: State) -> State:
        total = self.total
        return State(
            {server: total.servers[server] for server in touched.servers if server in total.servers},
            {each for each in touched.entries if each in total.entries},
            {each for each in touched.addresses if each in total.addresses},
        )

    def _put(self, key: str, new: State) -> None:
        old = self._states.pop(key, State())
        for server in old.servers:
            if server not in new.servers:
                self._claims[server].pop(key)
        for server, behaviour in new.servers.items():
            self._claims.setdefault(server, {})[key] = behaviour
        for server in {**old.servers, **new.servers}:
            claims = self._claims[server]
            if claims:
                self.total.servers[server] = next(iter(claims.values()))
            else:
                del self._claims[server], self.total.servers[server]
        self._count(old, new)
        if new.servers or new.entries or new.addresses:
            self._states[key] = new

    def _count(self, old: State, new: State) -> None:
        self._counts.update(new.entries)
        self._counts.update(new.addresses)
        self.total.entries |= new.entries
        self.total.addresses |= new.addresses
        for entry in old.entries:
            if self._dropped(entry):
                self.total.entries.discard(entry)
        for address in old.addresses:
            if self._dropped(address):
                self.total.addresses.discard(address)

    def _dropped(self, item: object) -> bool:
        """Count one Service less; return whether none is left."""
        self._counts[item] -= 1
        if self._counts[item]:
            return False
        del self._counts[item]
        return True
