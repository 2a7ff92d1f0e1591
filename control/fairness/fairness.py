"""API priority and fairness: every request has a flow schema, a priority level and, under load, a place in a queue.

What a request belongs to is looked up in a dict by who requests what, so that a server with room spends a microsecond or two on
it. Answers carry the UIDs of both (the X-Kubernetes-PF-* headers). The configuration is followed in the watch cache by
`control.fairness.flow_schema_controller`; until that has seen it, upstream's defaults hold.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from control.auth.user import UserInfo
from control.fairness import defaults, matching
from control.fairness.level import PriorityLevel, Refused
from control.fairness.waiting_levels import WaitingLevels
from control.fairness.wide_requests import WideRequests
from control.interfaces.requestinfo import RequestInfo
from kube.bounded_cache import LONGEST_USER, is_short
from kube.counters import Histogram
from kube.json_object import Object

Header = tuple[bytes, bytes]
REMEMBERED = 8192
WAITED = Histogram(
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "Time that requests spent in a queue.",
    *("execute", "flow_schema", "priority_level"),
    buckets=(0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
)
OBJECTS_A_SEAT = 100
WIDEST = 10


class Flow:
    """One flow of requests: its FlowSchema and priority level, their response headers, and its queues."""

    __slots__ = ("hand", "headers", "level", "schema", "who")

    def __init__(
        self, schema: str, level: PriorityLevel, headers: tuple[Header, ...], hand: tuple[int, ...], who: str
    ) -> None:
        self.schema, self.level, self.headers, self.hand, self.who = schema, level, headers, hand, who


class About(NamedTuple):
    """Description of a waiting request."""

    schema: str
    who: str
    user: UserInfo
    info: RequestInfo


class ServedRequests:
    """Numbers of requests of a flow schema that were given seats, and that have some now; a request is a `with` block."""

    __slots__ = ("dispatched", "executing")

    def __init__(self) -> None:
        self.dispatched = self.executing = 0

    def __enter__(self) -> None:
        self.dispatched += 1
        self.executing += 1

    def __exit__(self, *error: object) -> None:
        self.executing -= 1


class Fairness:
    """The levels of one server with `seats` places in all."""

    def __init__(self, seats: int, queue_timeout: float) -> None:
        self.seats, self.queue_timeout = seats, queue_timeout
        self._wide_requests, self._waiting_levels = WideRequests(), WaitingLevels()
        self._flows: dict[tuple[Any, ...], Flow] = {}
        self.levels: dict[str, PriorityLevel] = {}
        self._schemas: list[tuple[Object, matching.Matches]] = []
        self.refused: dict[tuple[str, str, str], int] = {}
        self.served: dict[tuple[str, str], ServedRequests] = {}
        """By flow schema and level."""
        self.configure(defaults.flow_schemas(), defaults.priority_levels())

    def configure(self, schemas: Iterable[Object], levels: Iterable[Object]) -> None:
        """Take over a configuration; requests that wait or run continue under the levels that they began with."""
        found = {level["metadata"]["name"]: level for level in levels}
        for level in defaults.priority_levels():
            if level["metadata"]["name"] in defaults.MANDATORY:
                found.setdefault(level["metadata"]["name"], level)
        total = sum(_shares(level) for level in found.values()) or 1
        made: dict[str, PriorityLevel] = {}
        for name, level in found.items():
            before = self.levels.get(name)
            nominal = max(1, math.ceil(self.seats * _shares(level) / total))
            fresh = PriorityLevel(level, nominal, self._wide_requests, self._waiting_levels, self._may_borrow)
            same = before is not None and _same(before, fresh)
            made[name] = before if before is not None and same else fresh
        self.levels = made
        self._schemas = [(schema, matching.compiled(schema)) for schema in matching.by_precedence(schemas)]
        self._flows = {}
        self._waiting_levels.dispatch()

    def dangling(self, schema: Object) -> bool:
        """Return whether a FlowSchema names a level that is not there."""
        return _level_of(schema) not in self.levels

    def flow(self, user: UserInfo, info: RequestInfo) -> Flow:
        """Return the flow of a request."""
        place = info.resource if info.is_resource else info.path
        key = (user.name, user.groups, info.verb, info.group, place, info.subresource, info.namespace)
        found = self._flows.get(key)
        if found is None:
            found = self._classify(user, info)
            texts = (info.verb, info.group, place, info.subresource, info.namespace)
            if is_short(*texts) and is_short(user.name, *user.groups, longest=LONGEST_USER):
                if len(self._flows) >= REMEMBERED:
                    self._flows = {}
                self._flows[key] = found
        return found

    def _classify(self, user: UserInfo, info: RequestInfo) -> Flow:
        for schema, matches in self._schemas:
            level = self.levels.get(_level_of(schema))
            if level is not None and matches(user, info):
                break
        else:
            schema, level = {"metadata": {"name": defaults.CATCH_ALL}}, self.levels[defaults.CATCH_ALL]
        method = ((schema.get("spec") or {}).get("distinguisherMethod") or {}).get("type", "")
        who = user.name if method == "ByUser" else info.namespace if method == "ByNamespace" else ""
        name, uid = schema["metadata"]["name"], schema["metadata"].get("uid", "")
        pairs = (
            (b"x-kubernetes-pf-flowschema-uid", uid.encode()),
            (b"x-kubernetes-pf-prioritylevel-uid", level.uid.encode()),
        )
        headers = tuple(header for header in pairs if header[1])  # the defaults have no UID before they are stored
        return Flow(name, level, headers, level.hand(f"{name}/{who}"), who)

    async def wait(self, flow: Flow, width: int, user: UserInfo, info: RequestInfo) -> None:
        """Wait for seats that were not there at once; raises Refused."""
        start, executed = time.perf_counter(), "true"
        try:
            await flow.level.wait(flow.hand, width, self.queue_timeout, About(flow.schema, flow.who, user, info))
        except Refused as refused:
            executed = "false"
            key = (flow.schema, flow.level.name, refused.why)
            self.refused[key] = self.refused.get(key, 0) + 1
            raise
        finally:
            WAITED.observe(executed, flow.schema, flow.level.name, time.perf_counter() - start)

    def executing(self, flow: Flow) -> ServedRequests:
        """Return a context manager that counts a request while it has seats."""
        key = (flow.schema, flow.level.name)
        served = self.served.get(key)
        if served is None:
            served = self.served[key] = ServedRequests()
        return served

    def width(self, objects: int) -> int:
        """Return the seats of a list that goes through so many objects."""
        return min(WIDEST, -(-objects // OBJECTS_A_SEAT)) or 1

    def _may_borrow(self, level: PriorityLevel, width: int) -> bool:
        # What a level has reserved and does not use is lent to nobody.
        taken = sum(max(other.executing, other.reserved) for other in self.levels.values() if other is not level)
        return taken + max(level.executing, level.reserved) + width <= self.seats


def _shares(level: Object) -> int:
    spec = level.get("spec") or {}
    part = spec.get("limited") if spec.get("type") == "Limited" else spec.get("exempt")
    return int((part or {}).get("nominalConcurrencyShares") or 0)


def _level_of(schema: Object) -> str:
    spec = schema.get("spec") or {}
    return str((spec.get("priorityLevelConfiguration") or {}).get("name", ""))


def _same(one: PriorityLevel, other: PriorityLevel) -> bool:
    parts = ("uid", "exempt", "nominal", "reserved", "most", "rejects", "hand_size", "queue_length", "queues")
    return all(getattr(one, part) == getattr(other, part) for part in parts)
