"""Connections of a listener, and selection of one to close if there are too many or they hold too much memory.

A connection belongs to its peer's address until somebody has been identified on it, then to that user. A flood without
credentials therefore closes connections of its own address, and can never close those of nodes and users. Where a flood
shares its address with others (one machine, a load balancer), the oldest connection goes of those that have come as far as
most have: connections of a flood all stand still at the same point, and those who mean well soon get past it.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable
from enum import IntEnum

from kube.owners import owner_of
from kube.rate import Rate
from kube.serving import handshakes
from kube.serving.budget import Budget
from kube.serving.fair_queue import FairQueue, Slots
from kube.serving.limits import ServingLimits
from kube.serving.table_group import TableGroup

STALLED_SHARE = 8
"""Divisor of the limits of unread responses and of incomplete bodies: the share of one address or user that is slow."""
HANDSHAKE_SHARE = 0.004
"""Seconds of a round for each handshake of the next one: a quarter to a half of the processor."""


class Stage(IntEnum):
    """Stage of a connection."""

    IDLE = 0
    """Nothing was sent yet, or the last request was answered."""
    HANDSHAKE = 1
    HEAD = 2
    REQUEST = 3


class Connection:
    """One connection's entry; `close` ends it at once."""

    __slots__ = ("close", "owner", "peer", "stage", "user", "work_of")

    def __init__(self, peer: str, close: Callable[[], None]) -> None:
        self.peer, self.close = peer, close
        self.user = ""
        self.work_of = ""
        """Namespace that the answer under way is about, where one user makes requests for many: the API server at a kubelet."""
        self.stage = Stage.IDLE
        self.owner: dict[Connection, None] = {}

    def release(self) -> None:
        """Drop what closes the connection, which has ended: it would be kept until the garbage collector runs."""
        self.owner, self.close = {}, _closed

    @property
    def who(self) -> str:
        """Return what the connection is counted with: the user, before that the address."""
        return self.user or self.peer


class ConnectionTable:
    """The connections of one listener; with a group, limits of several tables together apply too."""

    def __init__(self, limits: ServingLimits, group: TableGroup | None = None) -> None:
        self._limits, self._most, self._group = limits, limits.most_connections, group
        self._peers: dict[str, dict[Connection, None]] = {}
        self._users: dict[str, dict[Connection, None]] = {}
        unread, heads = limits.most_unread_bytes, limits.heads_bytes
        self._heads: Budget[Connection] = Budget(heads, heads)
        self._answers: Budget[Connection] = Budget(unread, unread, _namespace)
        self._stalled: Budget[Connection] = Budget(unread, unread // STALLED_SHARE, _namespace)
        self._bodies: Budget[Connection] = Budget(unread, unread, _namespace)
        self._slow_bodies: Budget[Connection] = Budget(unread, unread // STALLED_SHARE, _namespace)
        self._budgets = self._heads, self._answers, self._stalled, self._bodies, self._slow_bodies
        self.writes = FairQueue()
        self.handshakes = FairQueue(newest=True, each=HANDSHAKE_SHARE)
        """Handshakes that wait to begin."""
        self.handshake_steps = Slots(handshakes.QUEUED, newest=True)
        self._large_heads = Rate(limits.head_burst, limits.head_rate)
        self.large_heads = FairQueue(1)
        """Requests with large heads, which take milliseconds each: one is begun in an iteration of the event loop."""
        self.unauthenticated = self.authenticated = 0
        self.closed = 0
        """Connections that were closed or refused because of these limits."""

    def __len__(self) -> int:
        return self.unauthenticated + self.authenticated

    def add(self, address: str, close: Callable[[], None]) -> Connection | None:
        """Take a new connection in, closing another where there is no room; None if it is to be refused."""
        peer = peer_of(address)
        group = self._peers.get(peer)
        if group is not None and len(group) >= self._limits.unauthenticated_per_peer:
            self.evict(_weakest(group))
        elif self.unauthenticated >= self._limits.unauthenticated:
            self.evict(_weakest(_largest(self._peers)))
        full = len(self) >= self._most and not self.make_room()
        if full or (self._group is not None and not self._group.make_room(self)):
            self.closed += 1
            return None
        connection = Connection(peer, close)
        connection.owner = self._peers.setdefault(peer, {})
        connection.owner[connection] = None
        self.unauthenticated += 1
        self._record()
        return connection

    def make_room(self) -> bool:
        """Close a connection that is not in use; return False if there is none.

        A user that has more than half of all connections loses one even if it is in use.
        """
        if self._peers:
            self.evict(_weakest(_largest(self._peers)))
            return True
        if not self._users:
            return False
        group = _largest(self._users)
        idle = next((each for each in group if each.stage == Stage.IDLE), None)
        if idle is None and 2 * len(group) <= len(self):
            return False
        self.evict(idle or next(iter(group)))
        return True

    def identify(self, connection: Connection, user: str) -> None:
        """Note who makes requests on a connection; the service accounts of a namespace count as one."""
        user = owner_of(user)
        if connection.user == user or connection not in connection.owner:
            return
        self._leave(connection)
        for budget in self._budgets:
            budget.move(connection, connection.who, user)
        connection.user = user
        connection.owner = self._users.setdefault(user, {})
        connection.owner[connection] = None
        self.authenticated += 1

    @property
    def buffered_bytes(self) -> int:
        """Bytes that are kept for clients that do not continue."""
        return self._heads.total + self._answers.total + self._bodies.total

    def hold_head(self, connection: Connection, size: int) -> None:
        """Note how many bytes there are of a connection's unfinished head; closes the one that holds most if it is too much."""
        self._note(self._heads, connection, size)

    def hold_answer(self, connection: Connection, size: int) -> None:
        """Note how many bytes of an answer wait until the client reads; closes the one that holds most if it is too much."""
        self._note(self._answers, connection, size)

    def charge_head(self, connection: Connection, size: int, charged: int = 0) -> None:
        """Charge a connection's address or user with a head of so many bytes, of which some may have been charged before."""
        more = size - max(charged, self._limits.large_head)
        if more > 0:
            self._large_heads.charge(connection.who, more, time.monotonic())

    def head_delay(self, connection: Connection) -> float:
        """Return the seconds until a connection's address or user may send another large head."""
        return self._large_heads.delay(connection.who, time.monotonic())

    def hold_stalled(self, connection: Connection, size: int) -> None:
        """Record the same for a client that has not read for a while: their bytes are limited for each address."""
        self._note(self._stalled, connection, size)

    def hold_body(self, connection: Connection, size: int, *, slow: bool = False) -> None:
        """Record how many bytes there are of an incomplete body; those of slow clients are limited for each address or user."""
        self._note(self._bodies, connection, size)
        if slow or not size:
            self._note(self._slow_bodies, connection, size)

    def _note(self, budget: Budget[Connection], connection: Connection, size: int) -> None:
        if connection in connection.owner:
            budget.note(connection, connection.who, size)
            while (found := budget.largest(connection.who, _is_nobody)) is not None:
                self.evict(found)
            self._record()
            if self._group is not None:
                self._group.limit_bytes()

    def close_heaviest(self) -> bool:
        """Close the connection for which most bytes are held; return False if there is none."""
        sizes = max((self._heads, self._answers, self._bodies), key=lambda each: each.total).sizes
        if not sizes:
            return False
        self.evict(max(sizes, key=lambda each: sizes[each]))
        return True

    def _record(self) -> None:
        if self._group is not None:
            self._group.record(self)

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended; again is no error."""
        if connection in connection.owner:
            for budget in self._budgets:
                budget.note(connection, connection.who, 0)
            self._leave(connection)
            self._record()
            connection.release()

    def evict(self, connection: Connection) -> None:
        """Close a connection."""
        self.closed += 1
        close = connection.close
        self.remove(connection)
        close()

    def _leave(self, connection: Connection) -> None:
        del connection.owner[connection]
        if connection.user:
            self.authenticated -= 1
            groups, key = self._users, connection.user
        else:
            self.unauthenticated -= 1
            groups, key = self._peers, connection.peer
        if not connection.owner:
            del groups[key]


def _is_nobody(connection: Connection) -> bool:
    return not connection.user


def _namespace(connection: Connection) -> str:
    return connection.work_of


def _closed() -> None:
    """Stand in for the way to close a connection that has ended."""


def _largest(groups: dict[str, dict[Connection, None]]) -> dict[Connection, None]:
    return max(groups.values(), key=lambda group: len(group))


def _weakest(connections: Iterable[Connection]) -> Connection:
    """Return the oldest of those that have come as far as most have."""
    counts = [0] * len(Stage)
    oldest: dict[Stage, Connection] = {}
    for each in connections:
        counts[each.stage] += 1
        oldest.setdefault(each.stage, each)
    return oldest[max(oldest, key=lambda stage: (counts[stage], -stage))]


def peer_of(address: str) -> str:
    """Return what is counted as one peer: an IPv4 address, or an IPv6 network of 64 bits, as one site has at least."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    if parsed.is_loopback:
        return str(parsed)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))
