"""The result of one run of a probe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar, cast

from agent.threads import Owner
from kube.api import core_v1

T = TypeVar("T")


class Verdict(Enum):
    """ERRORED: the probe could not be made at all, so the container's state is unknown."""

    SUCCESS = "success"
    WARNING = "warning"
    FAILURE = "failure"
    ERRORED = "errored"


@dataclass(frozen=True, slots=True)
class Result:
    """A verdict, and the text that the event shows."""

    verdict: Verdict
    message: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a probe, and its pod."""

    container: core_v1.Container
    container_id: str
    pod_ip: str
    owner: Owner
    _made: dict[int, tuple[object, object]] = field(default_factory=dict, compare=False, repr=False)
    """By the identity of a probe's action: the action, and what was made of it."""

    def once(self, action: object, make: Callable[[], T]) -> T:
        """Return what `make` made of a probe's action: it is called once for all runs of the probe."""
        if id(action) not in self._made:
            self._made[id(action)] = action, make()
        return cast(T, self._made[id(action)][1])

    def port(self, port: int | str) -> int:
        """Resolve a port that may be named. Raise LookupError."""
        if isinstance(port, int) or (port.isascii() and port.isdigit() and len(port) < 6):
            if not 0 < int(port) < 65536:
                raise LookupError(f"invalid port number: {port}")
            return int(port)
        for known in self.container.ports:
            if known.name == port:
                return known.container_port
        # Upstream's message for a name that no port has: it tries it as a number last (pkg/probe/util.go).
        raise LookupError(f'strconv.Atoi: parsing "{port}": invalid syntax')


Handler = Callable[[core_v1.Probe, Target], Awaitable[Result]]


def success(message: str = "") -> Result:
    return Result(Verdict.SUCCESS, message)


def failure(message: str) -> Result:
    return Result(Verdict.FAILURE, message)


def errored(message: str) -> Result:
    return Result(Verdict.ERRORED, message)
