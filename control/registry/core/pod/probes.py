"""Checks of probes, lifecycle hooks and their actions."""

from __future__ import annotations

import re

from control.registry.checks import Errors, FieldErrors, port, port_or_name
from control.registry.rows import Rows
from control.registry.rules import Test, minimum, not_negative, number, require, require_enum
from kube.errors import forbidden_field, invalid_value, required
from kube.json_object import Object

_HEADER = re.compile("[-A-Za-z0-9]+")


def _headers(headers: list[Object] | None, path: str) -> FieldErrors:
    for header in headers or ():
        name = header.get("name") or ""
        if not _HEADER.fullmatch(name):
            detail = (
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
                "validation is '[-A-Za-z0-9]+')"
            )
            yield invalid_value(path, name, detail)


_HANDLERS = {
    "exec": Rows(("command", require())),
    "httpGet": Rows(
        ("path", require()),
        ("port", port_or_name),
        ("scheme", require_enum("HTTP", "HTTPS")),
        ("httpHeaders", _headers),
    ),
    "tcpSocket": Rows(("port", port_or_name)),
    "grpc": Rows(("port", number(port))),
    "sleep": Rows(),
}
_ONE = Test("{value} != 1", None, lambda value, path: [invalid_value(path, value, "must be 1")])
_ABSENT = Test("True", None, lambda value, path: [invalid_value(path, value, "must not be set for readinessProbes")])
_PROBE = Rows(
    (
        "{initialDelaySeconds,timeoutSeconds,periodSeconds,successThreshold,failureThreshold}",
        not_negative,
    ),
    ("terminationGracePeriodSeconds", minimum(1, "must be greater than 0")),
)
_READINESS = Rows(("", _PROBE), ("terminationGracePeriodSeconds?", _ABSENT))
_OTHERS = Rows(("", _PROBE), ("successThreshold?", _ONE))
PROBES = {"livenessProbe": _OTHERS, "readinessProbe": _READINESS, "startupProbe": _OTHERS}


def validate_probes(container: Object, path: str, grace: int | None) -> FieldErrors:
    """Check a container's lifecycle hooks and probes; `grace` is the pod's grace period."""
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        if lifecycle.get(hook) is not None:
            yield from _handler(lifecycle[hook], f"{path}.lifecycle.{hook}", grace)
    for key, rows in PROBES.items():
        if container.get(key) is not None:
            yield from _handler(container[key], f"{path}.{key}")
            yield from rows(container[key], f"{path}.{key}")


def _handler(handler: Object, path: str, grace: int | None = None) -> Errors:
    """Check that there is one thing to call, and that it can be called."""
    first, *others = [name for name in _HANDLERS if handler.get(name) is not None] or [""]
    if not first:
        return [required(path, "must specify a handler type")]
    errors = _HANDLERS[first](handler[first], f"{path}.{first}")
    if first == "sleep":
        errors += _sleep(handler[first], f"{path}.{first}", grace)
    return errors + [forbidden_field(f"{path}.{name}", "may not specify more than 1 handler type") for name in others]


def _sleep(action: Object, path: str, grace: int | None) -> FieldErrors:
    seconds, most = action.get("seconds", 0), 30 if grace is None else grace
    if not 0 <= seconds <= most:
        yield invalid_value(path, seconds, f"must be non-negative and less than terminationGracePeriodSeconds ({most})")
