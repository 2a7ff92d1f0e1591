"""Texts of an object's own, in every part of it that may contain text: metadata, spec, data and status.

A text is a name, a label's value and a part of an image alike, so that nearly every kind has a field for it, and a whole value
of a Secret, which is in base64 or, in protobuf, as it is. Labels have one that differs, for answers that have only them.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from kube.json_object import Object
from tests.support.authorised.targets import Target

_TEXT = re.compile(rb"zq[nl][0-9]{4}z")
_ENCODED = re.compile(rb"enFu[A-Za-z0-9+/]{7}=")
_TEMPLATE = "spec.template.metadata.annotations.text"
_RULE = {"apiGroups": [""], "resources": ["TEXT"], "verbs": ["get"]}
_SUBJECT = {"kind": "User", "name": "TEXT", "apiGroup": "rbac.authorization.k8s.io"}
_CONDITION = {"type": "Canary", "status": "True", "reason": "Canary", "message": "TEXT"} | {
    "lastTransitionTime": "2026-01-01T00:00:00Z"
}
_SPECS: dict[str, dict[str, Any]] = {
    "apiservices": {"spec.service.name": "TEXT"},
    "configmaps": {"data.k": "TEXT"},
    "controllerrevisions": {"data.a": "TEXT"},
    "clusterrolebindings": {"subjects": [_SUBJECT]},
    "clusterroles": {"rules.+": _RULE},
    "cronjobs": {"spec.jobTemplate.metadata.annotations.text": "TEXT"},
    "csidrivers": {"spec.tokenRequests": [{"audience": "TEXT"}]},
    "csinodes": {"spec.drivers": [{"name": "d.example.com", "nodeID": "TEXT"}]},
    "csistoragecapacities": {"storageClassName": "TEXT"},
    "customresourcedefinitions": {"spec.versions.0.schema.openAPIV3Schema.description": "TEXT"},
    "daemonsets": {_TEMPLATE: "TEXT"},
    "deployments": {_TEMPLATE: "TEXT"},
    "deviceclasses": {"spec.selectors.0.cel.expression": "'TEXT' != ''"},
    "endpoints": {"subsets.0.addresses.0.hostname": "TEXT"},
    "endpointslices": {"endpoints.0.hostname": "TEXT"},
    "events": {"message": "TEXT"},
    "flowschemas": {"spec.priorityLevelConfiguration.name": "TEXT"},
    "horizontalpodautoscalers": {"spec.scaleTargetRef.name": "TEXT"},
    "ingressclasses": {"spec.controller": "example.com/TEXT"},
    "ingresses": {"spec.defaultBackend.service.name": "TEXT"},
    "ipaddresses": {"spec.parentRef.name": "TEXT"},
    "jobs": {_TEMPLATE: "TEXT"},
    "leases": {"spec.holderIdentity": "TEXT"},
    "limitranges": {"spec.limits.0.type": "example.com/TEXT"},
    "mutatingadmissionpolicies": {"spec.matchConditions": [{"name": "TEXT", "expression": "true"}]},
    "mutatingadmissionpolicybindings": {"spec.matchResources.namespaceSelector.matchLabels.canary": "TEXT"},
    "mutatingwebhookconfigurations": {"webhooks.0.clientConfig.url": "https://hook.example.com/TEXT"},
    "networkpolicies": {"spec.podSelector.matchLabels.canary": "TEXT"},
    "nodes": {"spec.providerID": "TEXT"},
    "persistentvolumeclaims": {"spec.storageClassName": "TEXT"},
    "persistentvolumes": {"spec.hostPath.path": "/TEXT"},
    "pods": {"spec.containers.0.image": "TEXT"},
    "podtemplates": {"template.metadata.annotations.text": "TEXT"},
    "priorityclasses": {"description": "TEXT"},
    "replicasets": {_TEMPLATE: "TEXT"},
    "replicationcontrollers": {_TEMPLATE: "TEXT"},
    "resourceclaims": {"spec.devices.requests.0.exactly.deviceClassName": "TEXT"},
    "resourceclaimtemplates": {"spec.spec.devices.requests.0.exactly.deviceClassName": "TEXT"},
    "resourcequotas": {"spec.hard": {"count/TEXT.example.com": "1"}},
    "resourceslices": {"spec.pool.name": "TEXT"},
    "rolebindings": {"subjects": [_SUBJECT]},
    "roles": {"rules.+": _RULE},
    "runtimeclasses": {"handler": "TEXT"},
    "secrets": {"data.k": "BASE64"},
    "serviceaccounts": {"secrets.+": {"name": "TEXT"}},
    "services": {"spec.selector.canary": "TEXT"},
    "statefulsets": {_TEMPLATE: "TEXT"},
    "storageclasses": {"parameters": {"k": "TEXT"}},
    "validatingadmissionpolicies": {"spec.validations.0.message": "TEXT"},
    "validatingadmissionpolicybindings": {"spec.matchResources.namespaceSelector.matchLabels.canary": "TEXT"},
    "validatingwebhookconfigurations": {"webhooks.0.clientConfig.url": "https://hook.example.com/TEXT"},
    "volumeattachments": {"spec.source.persistentVolumeName": "TEXT"},
    "volumeattributesclasses": {"parameters": {"k": "TEXT"}},
}
"""Fields by their paths; "+" is one more element of a list."""
WITHOUT = (
    "certificatesigningrequests",
    "namespaces",
    "poddisruptionbudgets",
    "prioritylevelconfigurations",
    "servicecidrs",
)
"""Resources whose spec has no text that may be chosen without an effect on requests; they have it in their metadata."""
_CONDITIONED = (
    "daemonsets deployments horizontalpodautoscalers jobs namespaces persistentvolumeclaims poddisruptionbudgets"
    " replicasets replicationcontrollers statefulsets"
)
_STATUSES: dict[str, dict[str, Any]] = {
    "boats": {"text": "TEXT"},
    "cronjobs": {"active": [{"kind": "Job", "name": "TEXT"}]},
    "resourcequotas": {"hard": {"count/TEXT.example.com": "1"}},
    "ingresses": {"loadBalancer": {"ingress": [{"hostname": "TEXT.example.com"}]}},
    "persistentvolumes": {"phase": "Available", "message": "TEXT"},
    "pods": {"message": "TEXT"},
    "nodes": {"conditions": [_CONDITION]},
    "services": {"conditions": [_CONDITION]},
    "volumeattachments": {"attached": False, "attachError": {"message": "TEXT"}},
} | {plural: {"conditions": [_CONDITION]} for plural in _CONDITIONED.split()}


def text(number: int) -> str:
    """Return the text of an object's own."""
    return f"zqn{number:04}z"


def is_label(own: str) -> bool:
    """Return whether a text is that of an object's labels."""
    return own.startswith("zql")


def label(own: str) -> str:
    """Return the text in the labels of the object whose text is `own`."""
    return own.replace("zqn", "zql", 1)


def texts(data: bytes) -> set[str]:
    """Return the texts that an answer or a request contains, encoded or not."""
    found = {each.decode() for each in _TEXT.findall(data)}
    decoded = (base64.b64decode(each) for each in _ENCODED.findall(data))
    return found | {each.decode() for each in decoded if _TEXT.fullmatch(each)}


def marked(target: Target, obj: Object, own: str) -> Object:
    """Put an object's own text into its metadata and into its spec or data."""
    obj["metadata"].setdefault("annotations", {})["text"] = own
    obj["metadata"].setdefault("labels", {})["canary"] = label(own)
    places = _SPECS.get(target.plural, {}) if target.built_in is not None else {"spec.text": "TEXT"}
    if "aggregationRule" in obj:
        places = {"aggregationRule.clusterRoleSelectors.+": {"matchLabels": {"canary": "TEXT"}}}
    for path, value in places.items():
        _set(obj, path.split("."), _filled(value, own))
    return obj


def status(target: Target, own: str) -> Object:
    """Return the status that an object's own text is in, {} for a kind whose status has no text."""
    found: Object = _filled(_STATUSES.get(target.plural, {}), own)
    return found


def _set(at: Any, path: list[str], value: Any) -> None:
    *way, last = path
    for key, following in zip(way, path[1:], strict=True):
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, [] if following == "+" else {})
    if last == "+":
        at.append(value)
    else:
        at[last] = value


def _filled(value: Any, own: str) -> Any:
    match value:
        case dict():
            return {key.replace("TEXT", own): _filled(inner, own) for key, inner in value.items()}
        case list():
            return [_filled(inner, own) for inner in value]
        case str():
            return value.replace("TEXT", own).replace("BASE64", base64.b64encode(own.encode()).decode())
    return value
