"""The traffic that a gateway serves: listeners with the rules of the routes that are attached to them.

The controller in the control plane computes it for statuses, and each node's gateway for its traffic, by the same functions.
Routes of all kinds (HTTPRoute, Ingress) are converted to these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LONGEST_TARGET = 16 << 10
"""Bytes of a request's target that the gateway reads: a longer path matches no request."""
Pair = tuple[str, str]
"""A name (headers: lower case) and a value."""


@dataclass(frozen=True, slots=True)
class PathMatch:
    """A condition on a request's path; a prefix consists of whole segments."""

    kind: Literal["Exact", "PathPrefix"] = "PathPrefix"
    value: str = "/"


@dataclass(frozen=True, slots=True)
class Match:
    """Conditions that a request must all meet."""

    path: PathMatch = PathMatch()
    method: str = ""
    headers: tuple[Pair, ...] = ()
    query: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class HeaderChange:
    """Changes of a request's or a response's headers."""

    set: tuple[Pair, ...] = ()
    add: tuple[Pair, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathChange:
    """A new path, or what replaces the prefix that the rule has matched."""

    kind: Literal["ReplaceFullPath", "ReplacePrefixMatch"]
    value: str


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect that answers a request; empty fields are those of the request, 0 is the port that follows from the scheme."""

    scheme: str = ""
    hostname: str = ""
    port: int = 0
    path: PathChange | None = None
    status: int = 302


@dataclass(frozen=True, slots=True)
class Filters:
    """Changes to requests and responses of a rule or of one of its backends."""

    request: HeaderChange | None = None
    response: HeaderChange | None = None
    redirect: Redirect | None = None
    hostname: str = ""
    path: PathChange | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """A port of a Service and its share of the requests.

    A backend that cannot be used has no Service, and its share is answered 500.
    """

    weight: int
    namespace: str = ""
    service: str = ""
    port: int = 0
    filters: Filters = Filters()


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests that meet one of the matches go to the backends by weight; without backends they are answered 500.

    `request_seconds` and `backend_seconds` limit the whole request and each attempt at a backend; None is the gateway's
    default, 0 no limit.
    """

    matches: tuple[Match, ...] = (Match(),)
    filters: Filters = Filters()
    backends: tuple[Backend, ...] = ()
    request_seconds: float | None = None
    backend_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A route as one listener serves it: `hostnames` are those that it shares with the listener (empty: any).

    `single_label` is true for Ingresses, in whose hostnames a wildcard stands for one label.
    """

    kind: str
    namespace: str
    name: str
    created: str
    hostnames: tuple[str, ...]
    rules: tuple[Rule, ...]
    single_label: bool = False
    characters: int = 0
    """Length of all paths together, of Ingresses, where it is limited."""


@dataclass(frozen=True, slots=True, eq=False)
class HostOwners:
    """Namespaces by hostnames (of Ingresses: a wildcard stands for one label). Listeners of one object share their routes."""

    namespaces: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Listener:
    """A hostname (empty: any) on a port of a gateway. `certificates` are names of Secrets in the gateways' namespace.

    With `owners`, a host is served by routes of its owner's namespace alone, and one without an owner by those without
    a hostname. With `namespace` too, nothing but routes of this namespace is served.
    """

    name: str
    port: int
    tls: bool
    hostname: str
    certificates: tuple[str, ...]
    routes: tuple[Route, ...]
    owners: HostOwners | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Listeners of one Gateway. `ports` maps a listener's port to the one that every node's gateway listens on for it."""

    namespace: str
    name: str
    uid: str
    listeners: tuple[Listener, ...]
    ports: tuple[tuple[int, int], ...]
