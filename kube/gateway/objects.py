"""Types of the Gateway API's objects: the fields that Wherry reads.

They are custom resources, so `kube/api` has no generated types of them. What a field may contain is checked by the schemas of
their CustomResourceDefinitions (control/controllers/gateway/definitions), which an administrator may have replaced.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kube import resources
from kube.api import meta_v1

GROUP, VERSION = "gateway.networking.k8s.io", "v1"


class _Part(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """A part of an object."""


class _Object(_Part):
    """An object of the group."""

    api_version: str = ""
    kind: str = ""
    metadata: meta_v1.ObjectMeta = msgspec.field(default_factory=meta_v1.ObjectMeta)


class Reference(_Part):
    """A reference to an object, or to a port of it. Empty fields have defaults that depend on the field."""

    group: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str = ""
    port: int | None = None


# -- classes ----------------------------------------------------------------------------------------------------------
class GatewayClassSpec(_Part):
    controller_name: str = ""
    parameters_ref: Reference | None = None


class ClassStatus(_Part):
    conditions: list[meta_v1.Condition] = []
    supported_features: list[dict[str, str]] = []


class GatewayClass(_Object):
    spec: GatewayClassSpec = msgspec.field(default_factory=GatewayClassSpec)
    status: ClassStatus = msgspec.field(default_factory=ClassStatus)


# -- gateways ---------------------------------------------------------------------------------------------------------
class ListenerTLS(_Part):
    mode: str = "Terminate"
    certificate_refs: list[Reference] = []


class RouteNamespaces(_Part):
    from_: str = msgspec.field(default="Same", name="from")
    selector: meta_v1.LabelSelector | None = None


class RouteKind(_Part):
    group: str | None = None
    kind: str = ""


class AllowedRoutes(_Part):
    namespaces: RouteNamespaces = msgspec.field(default_factory=RouteNamespaces)
    kinds: list[RouteKind] = []


class Listener(_Part):
    name: str = ""
    hostname: str = ""
    port: int = 0
    protocol: str = ""
    tls: ListenerTLS | None = None
    allowed_routes: AllowedRoutes = msgspec.field(default_factory=AllowedRoutes)


class Address(_Part):
    type: str = "IPAddress"
    value: str = ""


class Infrastructure(_Part):
    parameters_ref: Reference | None = None


class FrontendTLS(_Part):
    validation: Any = None


class FrontendPort(_Part):
    port: int = 0
    tls: FrontendTLS = msgspec.field(default_factory=FrontendTLS)


class Frontend(_Part):
    default: FrontendTLS = msgspec.field(default_factory=FrontendTLS)
    per_port: list[FrontendPort] = []


class GatewayTLS(_Part):
    frontend: Frontend = msgspec.field(default_factory=Frontend)
    backend: Any = None


class GatewaySpec(_Part):
    gateway_class_name: str = ""
    listeners: list[Listener] = []
    addresses: list[Address] = []
    infrastructure: Infrastructure | None = None
    tls: GatewayTLS | None = None


class ListenerStatus(_Part):
    name: str = ""
    supported_kinds: list[dict[str, str]] = []
    attached_routes: int = 0
    conditions: list[meta_v1.Condition] = []


class GatewayStatus(_Part):
    addresses: list[dict[str, str]] = []
    conditions: list[meta_v1.Condition] = []
    listeners: list[ListenerStatus] = []


class Gateway(_Object):
    spec: GatewaySpec = msgspec.field(default_factory=GatewaySpec)
    status: GatewayStatus = msgspec.field(default_factory=GatewayStatus)


# -- routes -----------------------------------------------------------------------------------------------------------
class ParentReference(_Part):
    group: str = GROUP
    kind: str = "Gateway"
    namespace: str | None = None
    name: str = ""
    section_name: str | None = None
    port: int | None = None


class PathMatch(_Part):
    type: str = "PathPrefix"
    value: str = "/"


class ValueMatch(_Part):
    """A condition on a header or a query parameter."""

    type: str = "Exact"
    name: str = ""
    value: str = ""


class RouteMatch(_Part):
    path: PathMatch = msgspec.field(default_factory=PathMatch)
    headers: list[ValueMatch] = []
    query_params: list[ValueMatch] = []
    method: str = ""


class Header(_Part):
    name: str = ""
    value: str = ""


class HeaderModifier(_Part):
    set: list[Header] = []
    add: list[Header] = []
    remove: list[str] = []


class PathModifier(_Part):
    type: str = ""
    replace_full_path: str = ""
    replace_prefix_match: str = ""


class RequestRedirect(_Part):
    scheme: str = ""
    hostname: str = ""
    path: PathModifier | None = None
    port: int = 0
    status_code: int = 302


class URLRewrite(_Part):
    hostname: str = ""
    path: PathModifier | None = None


class RouteFilter(_Part):
    type: str = ""
    request_header_modifier: HeaderModifier | None = None
    response_header_modifier: HeaderModifier | None = None
    request_redirect: RequestRedirect | None = None
    url_rewrite: URLRewrite | None = None


class BackendReference(Reference):
    weight: int = 1
    filters: list[RouteFilter] = []


class Timeouts(_Part):
    request: str = ""
    backend_request: str = ""


class RouteRule(_Part):
    matches: list[RouteMatch] = []
    filters: list[RouteFilter] = []
    backend_refs: list[BackendReference] = []
    timeouts: Timeouts = msgspec.field(default_factory=Timeouts)
    retry: Any = None
    session_persistence: Any = None


class HTTPRouteSpec(_Part):
    parent_refs: list[ParentReference] = []
    hostnames: list[str] = []
    rules: list[RouteRule] = []


class RouteStatus(_Part):
    parents: list[dict[str, Any]] = []
    """As they are stored: other controllers' may have fields that are unknown here."""


class HTTPRoute(_Object):
    spec: HTTPRouteSpec = msgspec.field(default_factory=HTTPRouteSpec)
    status: RouteStatus = msgspec.field(default_factory=RouteStatus)


# -- grants -----------------------------------------------------------------------------------------------------------
class GrantFrom(_Part):
    group: str = ""
    kind: str = ""
    namespace: str = ""


class GrantTo(_Part):
    group: str = ""
    kind: str = ""
    name: str = ""


class GrantSpec(_Part):
    from_: list[GrantFrom] = msgspec.field(default_factory=list, name="from")
    to: list[GrantTo] = []


class ReferenceGrant(_Object):
    spec: GrantSpec = msgspec.field(default_factory=GrantSpec)


KINDS: tuple[type[Any], ...] = (GatewayClass, Gateway, HTTPRoute, ReferenceGrant)

for _kind, _plural, _namespaced in (
    (GatewayClass, "gatewayclasses", False),
    (Gateway, "gateways", True),
    (HTTPRoute, "httproutes", True),
    (ReferenceGrant, "referencegrants", True),
):
    resources.register_custom(_kind, resources.Resource(GROUP, VERSION, _plural, _kind.__name__, "", _namespaced))
