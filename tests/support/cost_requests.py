"""Requests to the API server that carry the inputs of tests/support/cost_cases, by what reads the input.

Everything that writes is a dry run: what matters is the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from kube.json_object import Object
from kube.schema import wire
from tests.support import nesting

NAMESPACE = "/api/v1/namespaces/default"
CONFIG_MAPS, PODS, SERVICES = (f"{NAMESPACE}/{plural}" for plural in ("configmaps", "pods", "services"))
BATCH = "/apis/batch/v1/namespaces/default"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
CERTIFICATES = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
DRY, STRICT = "?dryRun=All", "?dryRun=All&fieldValidation=Strict"
JSON, YAML = "application/json", "application/yaml"
FORMATS = (
    *(
        "bsonobjectid",
        "byte",
        "cidr",
        "creditcard",
        "date",
        "datetime",
        "duration",
        "email",
        "hexcolor",
        "hostname",
        "ipv4",
    ),
    *("ipv6", "isbn", "isbn10", "isbn13", "k8s-long-name", "k8s-short-name", "mac", "rgbcolor", "ssn", "uri", "uuid"),
    *("uuid3", "uuid4", "uuid5"),
)


@dataclass(frozen=True)
class Sent:
    """A request with an input."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


Send = Callable[[Any], Sent]


def post(path: str, make: Callable[[Any], Any], content_type: str = JSON, options: str = DRY) -> Send:
    """Create an object, or one of the bytes that `make` returns."""

    def send(given: Any) -> Sent:
        made = make(given)
        body = made if isinstance(made, bytes) else json.dumps(made).encode(errors="surrogatepass")
        return Sent("POST", path + options, body, {"Content-Type": content_type})

    return send


def as_bytes(given: bytes | str) -> bytes:
    return given if isinstance(given, bytes) else given.encode(errors="surrogatepass")


def patch(path: str, content_type: str, make: Callable[[Any], Any]) -> Send:
    def send(given: Any) -> Sent:
        options = f"{DRY}&fieldManager=m&force=true" if "apply" in content_type else DRY
        return Sent("PATCH", path + options, json.dumps(make(given)).encode(), {"Content-Type": content_type})

    return send


def query(option: str) -> Send:
    return lambda given: Sent("GET", f"{CONFIG_MAPS}?{option}={quote(given, safe='')}")


def header(name: str, before: str = "") -> Send:
    return lambda given: Sent("GET", CONFIG_MAPS, None, {name: before + given})


def named(name: str, **parts: Any) -> Object:
    return {"metadata": {"name": name}, **parts}


def pod(container: Object | None = None, **spec: Any) -> Object:
    return named("a", spec={"containers": [{"name": "c", "image": "i", **(container or {})}], **spec})


def job(schedule: str) -> Object:
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    return named("a", spec={"schedule": schedule, "jobTemplate": {"spec": {"template": template}}})


def policy(expression: str = "true", rule: Object | None = None) -> Object:
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    match = {"resourceRules": [{"operations": ["CREATE"], **rule} if rule else pods]}
    return named("a", spec={"matchConstraints": match, "validations": [{"expression": expression}]})


def definition(schema: Object, **version: Any) -> Object:
    made = nesting.definition("others", {"type": "object", "properties": {"spec": schema}})
    made["spec"]["versions"][0] |= version
    return made


def of_format(name: str) -> Send:
    return post(nesting.THINGS, lambda given: {**nesting.thing("a", 1), "spec": {"formats": {name: given}}})


def probe(part: str) -> Send:
    get = {"port": 80, "path": "/"}
    return post(PODS, lambda given: pod({"livenessProbe": {"httpGet": {**get, part: given}}}))


def protobuf(given: tuple[bytes, str]) -> bytes:
    message, kind = given
    if kind == "JSONSchemaProps":
        return nesting.with_schema(message)
    return (
        wire.MAGIC
        + nesting.field(1, nesting.field(1, b"v1") + nesting.field(2, kind.encode()))
        + nesting.field(2, message)
    )


PROTOBUF = wire.MEDIA_TYPE
SCALED = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SENT: dict[str, Send] = {
    "JSON": post(CONFIG_MAPS, as_bytes),
    "JSON of a pod": post(PODS, as_bytes, options=STRICT),
    "JSON of a config map": post(CONFIG_MAPS, as_bytes, options=STRICT),
    "JSON of a definition": post(nesting.DEFINITIONS, as_bytes, options=STRICT),
    "YAML": post(CONFIG_MAPS, as_bytes, YAML),
    "YAML body": post(CONFIG_MAPS, as_bytes, YAML),
    "JSON within protobuf": post(CONFIG_MAPS, lambda given: nesting.config_map_with_fields("a", given), PROTOBUF),
    "JSON patch": patch(f"{CONFIG_MAPS}/here", "application/json-patch+json", lambda given: given[1]),
    "merge patch": patch(f"{CONFIG_MAPS}/here", "application/merge-patch+json", lambda given: given),
    "strategic merge": patch(f"{PODS}/here", "application/strategic-merge-patch+json", lambda given: given[1]),
    "apply": patch(f"{PODS}/a", "application/apply-patch+yaml", lambda given: given[1]),
    "managed fields": post(PODS, lambda given: given),
    "metadata": post(CONFIG_MAPS, lambda given: {"metadata": {"name": "a", **given}}),
    "resources of a container": post(PODS, lambda given: pod({"resources": {"limits": given}})),
    "image": post(PODS, lambda given: pod({"image": given})),
    "variables": post(PODS, lambda given: pod({"env": [{"name": "A", "value": given}]})),
    "host of a probe": probe("host"),
    "path of a probe": probe("path"),
    "header of a probe": post(
        PODS,
        lambda given: pod({"livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": given, "value": "v"}]}}}),
    ),
    "label selector": query("labelSelector"),
    "field selector": query("fieldSelector"),
    "resource version": query("resourceVersion"),
    "continue token": query("continue"),
    "Accept": header("Accept"),
    "Content-Type": lambda given: Sent("POST", CONFIG_MAPS + DRY, b"{}", {"Content-Type": given}),
    "token": header("Authorization", "Bearer "),
    "subprotocols": header("Sec-WebSocket-Protocol"),
    "path": lambda given: Sent("GET", quote(given, safe="/%")),
    "dns1123_label": post("/api/v1/namespaces", named),
    "dns1123_subdomain": post(CONFIG_MAPS, named),
    "dns1123_subdomain_with_underscore": post(CONFIG_MAPS, named),
    "dns1035_label": post(SERVICES, lambda given: named(given, spec={"ports": [{"port": 1}]})),
    "qualified_name": post(CONFIG_MAPS, lambda given: {"metadata": {"name": "a", "labels": {given: "v"}}}),
    "label_value": post(CONFIG_MAPS, lambda given: {"metadata": {"name": "a", "labels": {"k": given}}}),
    "path_segment": post("/apis/rbac.authorization.k8s.io/v1/clusterroles", named),
    "port_name": post(PODS, lambda given: pod({"ports": [{"containerPort": 1, "name": given}]})),
    "env_var_name": post(PODS, lambda given: pod({"env": [{"name": given, "value": "v"}]})),
    "config_map_key": post(CONFIG_MAPS, lambda given: named("a", data={given: "v"})),
    "quantity": post(f"{NAMESPACE}/resourcequotas", lambda given: named("a", spec={"hard": {"pods": given}})),
    "cron schedule": post(f"{BATCH}/cronjobs", job),
    "cron job": post(f"{BATCH}/cronjobs", job),
    "time": post(CONFIG_MAPS, lambda given: {"metadata": {"name": "a", "creationTimestamp": given}}),
    "percentage": post(SCALED, lambda given: named("a", spec={"minAvailable": given, "selector": {}})),
    "certificate request": post(
        CERTIFICATES,
        lambda given: named("a", spec={"request": given, "signerName": "a.b/c", "usages": ["client auth"]}),
    ),
    "CEL": post(POLICIES, policy),
    "kinds of a policy's rule": post(POLICIES, lambda given: policy(rule=given)),
    "schema": post(nesting.DEFINITIONS, definition),
    "schema that is built": post(nesting.DEFINITIONS, definition),
    "pattern of a schema": post(nesting.DEFINITIONS, lambda given: definition({"type": "string", "pattern": given})),
    "pattern": of_format("pattern"),
    "JSON path": post(
        nesting.DEFINITIONS,
        lambda given: definition(
            {"type": "object"}, additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": given}]
        ),
    ),
    "custom resource": post(nesting.THINGS, lambda given: {**nesting.thing("a", 1), **given}),
    "changed custom resource": post(nesting.THINGS, lambda given: {**nesting.thing("a", 1), **given}),
    **{f"format {name.replace('-', '')}": of_format(name) for name in FORMATS},
}
"""Requests by the name of a family of cases."""
protobuf_sent = {
    "Pod": post(PODS, protobuf, PROTOBUF),
    "ConfigMap": post(CONFIG_MAPS, protobuf, PROTOBUF),
    "JSONSchemaProps": post(nesting.DEFINITIONS, protobuf, PROTOBUF),
}
SENT["protobuf"] = lambda given: protobuf_sent[given[1]](given)
NOT_SENT = {
    "to the DNS server": ("DNS query", "DNS answer"),
    "to the kubelet": (
        *("log query", "log query since", "pattern of a log query", "long pattern of a log query"),
        *("services of a log query", "sinceTime of a log query", "untilTime of a log query"),
        *("tailLines of a log query", "boot of a log query"),
    ),
    "by containers, the runtime and the kernel": (
        *("metrics of a node", "log line", "CNI result", "virtual servers", "entries of sets", "chains of iptables"),
        "a table of nf_tables",
    ),
    "by backends of the proxies": (
        *("answer", "answer in pieces of 100", "URL", "URL of a request", "Location", "page in pieces of 65536"),
        *("page in pieces of 1000", "page byte by byte", "gzip", "gzip of noise"),
    ),
    "in streams, after the answer": ("SPDY", "channel", "WebSocket"),
    "in handshakes, or by signers": ("client certificate", "issued certificate"),
    "by values of objects that another case sends": (
        *("CEL value", "columns", "columns of descents", "columns of descents in a filter"),
        *("columns of a filter with many fields", "JSON in many messages of protobuf", "duration"),
    ),
}
"""Families of cases whose inputs come to something else than the API server, or later than in a request."""
THING = nesting.definition(
    "things",
    {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {
                    "formats": {
                        "type": "object",
                        "properties": {
                            "pattern": {"type": "string", "pattern": "^(a|b)*c$"},
                            **{name: {"type": "string", "format": name} for name in FORMATS},
                        },
                    }
                },
            }
        },
    },
)
