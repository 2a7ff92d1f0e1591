"""Tables of the handlers of subresources, and of kinds that can only be created (reviews)."""

from __future__ import annotations

from functools import partial

from control.auth.setup import Auth
from control.dialing.node_dialer import Dialer
from control.resource_metrics.objects import GROUP
from control.server.resource_metrics import ResourceMetrics
from control.server.resources import Handler, Handlers
from control.server.subresources import backends, custom_scale, kubelet, object_fields, pods, reviews, scale
from control.server.verbs import Verbs
from kube.serving.frames import SessionYield


def handlers(server: Verbs, auth: Auth, dialer: Dialer, *, resource_metrics: bool = True) -> Handlers:
    """Return the handlers; `dialer` reaches nodes' agents. Without `resource_metrics` the group is not served."""
    part: dict[str, Handler] = {
        "get": partial(object_fields.get, server),
        "update": partial(object_fields.update, server),
        "patch": partial(object_fields.patch, server),
    }
    scaled: dict[str, Handler] = {
        "get": partial(scale.get, server),
        "update": partial(scale.update, server),
        "patch": partial(scale.patch, server),
    }
    connect = partial(kubelet.connect, server, dialer)
    stream: dict[str, Handler] = {"create": connect, "get": connect}
    subresources: dict[tuple[str, str], dict[str, Handler]] = {
        ("pods", "binding"): {"create": partial(pods.bind, server)},
        ("pods", "eviction"): {"create": partial(pods.evict, server)},
        ("pods", "ephemeralcontainers"): part,
        ("pods", "resize"): part,
        ("pods", "log"): {"get": partial(kubelet.log, server, dialer, SessionYield())},
        ("pods", "exec"): stream,
        ("pods", "attach"): stream,
        ("pods", "portforward"): stream,
        ("nodes", "proxy"): _every_method(partial(backends.node, server, dialer)),
        ("pods", "proxy"): _every_method(partial(backends.pod, server)),
        ("services", "proxy"): _every_method(partial(backends.service, server)),
        ("replicationcontrollers", "scale"): scaled,
        ("deployments.apps", "scale"): scaled,
        ("replicasets.apps", "scale"): scaled,
        ("statefulsets.apps", "scale"): scaled,
        ("serviceaccounts", "token"): {"create": partial(reviews.service_account_token, server, auth)},
        ("namespaces", "finalize"): {"update": part["update"]},
        ("certificatesigningrequests.certificates.k8s.io", "approval"): part,
    }
    access = partial(reviews.subject_access, server, auth)
    asked: dict[str, Handler] = {
        "bindings": partial(reviews.binding, server),
        "selfsubjectreviews.authentication.k8s.io": partial(reviews.self_subject, server),
        "tokenreviews.authentication.k8s.io": partial(reviews.token, server, auth),
        "subjectaccessreviews.authorization.k8s.io": access,
        "localsubjectaccessreviews.authorization.k8s.io": access,
        "selfsubjectaccessreviews.authorization.k8s.io": partial(reviews.self_access, server, auth),
        "selfsubjectrulesreviews.authorization.k8s.io": partial(reviews.self_rules, server, auth),
    }
    custom: dict[str, Handler] = {
        "get": partial(custom_scale.get, server),
        "update": partial(custom_scale.update, server),
        "patch": partial(custom_scale.patch, server),
    }
    groups = {GROUP: ResourceMetrics(server.registry, dialer).answer} if resource_metrics else {}
    return Handlers(subresources, custom, asked, groups)


def _every_method(handler: Handler) -> dict[str, Handler]:
    return {verb: handler for verb in ("get", "create", "update", "patch", "delete")}
