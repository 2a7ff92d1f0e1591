"""Checks of probes, lifecycle hooks and their actions."""

from __future__ import annotations

import re

from control.registry.checks import Errors, non_negative, one_of, port, port_or_name
from kube.errors import forbidden_field, invalid_value, required
from kube.json_object import Object

_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_TIMES = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HEADER = re.compile("[-A-Za-z0-9]+")


def validate_probe(probe: Object | None, kind: str, path: str, grace: int | None = None) -> Errors:
    """Check a "liveness", "readiness" or "startup" probe; `grace` is the pod's own grace period."""
    if probe is None:
        return []
    errors = validate_handler(probe, path)
    for key in _TIMES:
        errors += non_negative(probe.get(key), f"{path}.{key}")
    own = probe.get("terminationGracePeriodSeconds")
    where = f"{path}.terminationGracePeriodSeconds"
    if own is not None:
        if own <= 0:
            errors.append(invalid_value(where, own, "must be greater than 0"))
        if kind == "readiness":
            errors.append(invalid_value(where, own, "must not be set for readinessProbes"))
    if kind != "readiness" and probe.get("successThreshold") not in (None, 1):
        errors.append(invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return errors


def validate_lifecycle(lifecycle: Object | None, path: str, grace: int | None = None) -> Errors:
    errors: Errors = []
    for hook in ("postStart", "preStop"):
        handler = (lifecycle or {}).get(hook)
        if handler is not None:
            errors += validate_handler(handler, f"{path}.{hook}", grace)
    return errors


def validate_handler(handler: Object, path: str, grace: int | None = None) -> Errors:
    """Check that there is one thing to call, and that it can be called."""
    found = [name for name in _HANDLERS if handler.get(name) is not None]
    if not found:
        return [required(path, "must specify a handler type")]
    errors: Errors = []
    for position, name in enumerate(found):
        where, action = f"{path}.{name}", handler[name]
        if position:
            errors.append(forbidden_field(where, "may not specify more than 1 handler type"))
        elif name == "exec":
            errors += [] if action.get("command") else [required(f"{where}.command")]
        elif name == "httpGet":
            errors += _http(action, where)
        elif name == "tcpSocket":
            errors += port_or_name(action.get("port"), f"{where}.port")
        elif name == "grpc":
            errors += port(action.get("port", 0), f"{where}.port")
        else:
            errors += _sleep(action, where, grace)
    return errors


def _http(action: Object, path: str) -> Errors:
    errors = [] if action.get("path") else [required(f"{path}.path")]
    errors += port_or_name(action.get("port"), f"{path}.port")
    errors += one_of(action.get("scheme"), ("HTTP", "HTTPS"), f"{path}.scheme")
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        if not _HEADER.fullmatch(name):
            detail = (
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
                "validation is '[-A-Za-z0-9]+')"
            )
            errors.append(invalid_value(f"{path}.httpHeaders", name, detail))
    return errors


def _sleep(action: Object, path: str, grace: int | None) -> Errors:
    seconds, most = action.get("seconds", 0), 30 if grace is None else grace
    if 0 <= seconds <= most:
        return []
    return [invalid_value(path, seconds, f"must be non-negative and less than terminationGracePeriodSeconds ({most})")]
