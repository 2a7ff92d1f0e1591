"""AuthorizationConfiguration (apiserver.config.k8s.io): the authorizers and their order.

system:masters come first in any case. Types: Node, RBAC, AlwaysAllow, AlwaysDeny, and any number of Webhooks. While
the server runs the file is read again when it changes; what is not about webhooks may then be reordered, but neither
added nor removed, so that a mistake does not open or close the cluster (pkg/kubeapiserver/authorizer/reload.go).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control.auth.fields import ConfigurationError, known, list_at, object_at, read, seconds_at
from control.auth.webhooks.access import Settings
from control.cel import CompileError, Declarations, Program
from control.cel import compile as compile_cel
from control.cel.types import STRING, list_of, map_of, object_of
from kube import names
from kube.json_object import Object
from kube.kubeconfig import KubeconfigError

TYPES = ("Node", "RBAC", "AlwaysAllow", "AlwaysDeny", "Webhook")
LONGEST_TIMEOUT = 30.0
MOST_CONDITIONS = 64
_REQUIREMENT = object_of(
    {"key": STRING, "operator": STRING, "values": list_of(STRING)}, "kubernetes.SelectorRequirement"
)


def _selector(name: str) -> Any:
    return object_of({"rawSelector": STRING, "requirements": list_of(_REQUIREMENT)}, f"kubernetes.{name}")


_NAMES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_RESOURCE = dict.fromkeys(_NAMES, STRING) | {
    "fieldSelector": _selector("FieldSelectorAttributes"),
    "labelSelector": _selector("LabelSelectorAttributes"),
}
_SPEC = {
    "resourceAttributes": object_of(_RESOURCE, "kubernetes.ResourceAttributes"),
    "nonResourceAttributes": object_of({"path": STRING, "verb": STRING}, "kubernetes.NonResourceAttributes"),
    "user": STRING,
    "groups": list_of(STRING),
    "extra": map_of(STRING, list_of(STRING)),
    "uid": STRING,
}
_REQUEST = Declarations({"request": object_of(_SPEC, "kubernetes.SubjectAccessReviewSpec")})


@dataclass(frozen=True, slots=True)
class Entry:
    """One authorizer; `webhook`, `kubeconfig` and `timeout` (seconds) where it is one."""

    type: str
    name: str
    webhook: Settings | None = None
    kubeconfig: Path | None = None
    timeout: float = 3.0


def parse(text: str | bytes, required: Collection[str] | None = None) -> tuple[Entry, ...]:
    """Read the file's text; raises ConfigurationError. `required` are the other types that it must and may have."""
    document = read(text, "AuthorizationConfiguration")
    known(document, "", ("apiVersion", "kind", "authorizers"))
    found: list[Entry] = []
    for index, entry in enumerate(list_at(document, "authorizers", "")):
        made = _entry(entry, f"authorizers[{index}]")
        if made.type != "Webhook" and any(other.type == made.type for other in found):
            raise ConfigurationError(f'authorizers[{index}].type: Duplicate value: "{made.type}"')
        if any(other.name == made.name for other in found):
            raise ConfigurationError(f'authorizers[{index}].name: Duplicate value: "{made.name}"')
        found.append(made)
    if not found:
        raise ConfigurationError("authorizers: Required value: at least one authorization mode must be defined")
    others = {entry.type for entry in found if entry.type != "Webhook"}
    if required is not None and others != set(required):
        raise ConfigurationError(
            f"authorizers: while the server runs it must have exactly these types besides webhooks: "
            f"{', '.join(sorted(required)) or 'none'}"
        )
    return tuple(found)


def _entry(entry: Object, path: str) -> Entry:
    known(entry, path, ("type", "name", "webhook"))
    kind, name = str(entry.get("type") or ""), str(entry.get("name") or "")
    if kind not in TYPES:
        shown = ", ".join(f'"{each}"' for each in TYPES)
        raise ConfigurationError(f'{path}.type: Unsupported value: "{kind}": supported values: {shown}')
    if not name:
        raise ConfigurationError(f"{path}.name: Required value")
    if problems := names.dns1123_subdomain(name):
        raise ConfigurationError(f'{path}.name: Invalid value: "{name}": {problems[0]}')
    if kind != "Webhook":
        if entry.get("webhook") is not None:
            raise ConfigurationError(f"{path}.webhook: Invalid value: may only be specified when type=Webhook")
        return Entry(kind, name)
    if not entry.get("webhook"):
        raise ConfigurationError(f"{path}.webhook: Required value: required when type=Webhook")
    return _webhook(object_at(entry, "webhook", path), name, f"{path}.webhook")


def _webhook(hook: Object, name: str, path: str) -> Entry:
    times = ("authorizedTTL", "unauthorizedTTL", "timeout", "cacheAuthorizedRequests", "cacheUnauthorizedRequests")
    versions = ("subjectAccessReviewVersion", "matchConditionSubjectAccessReviewVersion")
    known(hook, path, (*times, *versions, "failurePolicy", "connectionInfo", "matchConditions"))
    timeout = seconds_at(hook, "timeout", path, 0)
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise ConfigurationError(f"{path}.timeout: must be > 0s and <= 30s")
    authorized, unauthorized = (
        seconds_at(hook, "authorizedTTL", path, 300.0),
        seconds_at(hook, "unauthorizedTTL", path, 30.0),
    )
    if authorized <= 0 or unauthorized <= 0:
        raise ConfigurationError(f"{path}.authorizedTTL, {path}.unauthorizedTTL: must be > 0s")
    version = _one_of(hook, "subjectAccessReviewVersion", path, ("v1", "v1beta1"))
    policy = _one_of(hook, "failurePolicy", path, ("NoOpinion", "Deny"))
    conditions = _conditions(hook, path)
    if conditions or hook.get("matchConditionSubjectAccessReviewVersion"):
        _one_of(hook, "matchConditionSubjectAccessReviewVersion", path, ("v1",))
    settings = Settings(
        name,
        version,
        authorized if hook.get("cacheAuthorizedRequests", True) else 0.0,
        unauthorized if hook.get("cacheUnauthorizedRequests", True) else 0.0,
        policy == "Deny",
        conditions,
    )
    return Entry("Webhook", name, settings, _kubeconfig(hook, path), timeout)


def _kubeconfig(hook: Object, path: str) -> Path:
    connection, where = object_at(hook, "connectionInfo", path), f"{path}.connectionInfo"
    known(connection, where, ("type", "kubeConfigFile"))
    # InClusterConfig means the API server that asks, and would ask itself.
    _one_of(connection, "type", where, ("KubeConfigFile",))
    file = str(connection.get("kubeConfigFile") or "")
    if not file:
        raise ConfigurationError(f"{where}.kubeConfigFile: Required value")
    if not file.startswith("/"):
        raise ConfigurationError(f'{where}.kubeConfigFile: Invalid value: "{file}": must be an absolute path')
    return Path(file)


def _conditions(hook: Object, path: str) -> tuple[Program, ...]:
    found: dict[str, Program] = {}
    conditions = list_at(hook, "matchConditions", path)
    if len(conditions) > MOST_CONDITIONS:
        raise ConfigurationError(f"{path}.matchConditions: Too many: {len(conditions)}: at most {MOST_CONDITIONS}")
    for index, condition in enumerate(conditions):
        where = f"{path}.matchConditions[{index}]"
        known(condition, where, ("expression",))
        text = str(condition.get("expression") or "").strip()
        if not text:
            raise ConfigurationError(f"{where}.expression: Required value")
        if text in found:
            raise ConfigurationError(f'{where}.expression: Duplicate value: "{text}"')
        try:
            program = compile_cel(text, _REQUEST)
        except CompileError as error:
            raise ConfigurationError(f"{where}.expression: compilation failed: {error}") from error
        if program.result.kind != "bool":
            raise ConfigurationError(f"{where}.expression: must evaluate to bool but got {program.result}")
        found[text] = program
    return tuple(found.values())


def _one_of(holder: Object, name: str, path: str, allowed: tuple[str, ...]) -> str:
    value = str(holder.get(name) or "")
    if not value:
        raise ConfigurationError(f"{path}.{name}: Required value")
    if value not in allowed:
        shown = ", ".join(f'"{each}"' for each in allowed)
        raise ConfigurationError(f'{path}.{name}: Unsupported value: "{value}": supported values: {shown}')
    return value


def connected(entry: Entry, make: Callable[[Path, float], Any]) -> Any:
    """Return the client of a webhook's entry; raises ConfigurationError if its kubeconfig cannot be used."""
    assert entry.kubeconfig is not None
    try:
        return make(entry.kubeconfig, entry.timeout)
    except (KubeconfigError, ssl.SSLError, ValueError, OSError) as error:
        raise ConfigurationError(f"webhook {entry.name}: connectionInfo.kubeConfigFile: {error}") from error
