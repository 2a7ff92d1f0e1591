"""The objects that there are: two of each kind with the same names in both namespaces, one with a name that is nowhere else."""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kube.json_object import Object
from tests.support.authorised.targets import Target
from tests.support.minimal import minimal

NAMESPACES = ("left", "right")
NODES = {"n1": "10.8.0.1", "n2": "10.8.0.2"}
POD_ADDRESSES = {("left", "a"): "10.9.0.1", ("right", "a"): "10.9.0.2"}
PARAMETERS = {"b.c": ("", "configmaps")}
"""Group and resource of the parameters of policies, by the policies' names."""
STARTED = {"name": "c", "image": "busybox", "imageID": "", "ready": True, "restartCount": 0} | {
    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
}
"""State of a container that runs."""
COMPONENTS = ("zqcomponenta", "zqcomponentb")
OUTSIDE = "203.0.113.9"
"""External name of a Service of type ExternalName."""


def objects_of(target: Target, namespace: str, request: str) -> list[Object]:
    """Return the objects of a kind: two with the same names in both namespaces, one with a name of its own."""
    plural = target.plural
    own = f"zq{plural}{target.group.partition('.')[0]}{namespace}"
    names = {
        "services": ("a", "b", own, "outside"),
        "serviceaccounts": ("default", "a", "b.c", own),
        "nodes": tuple(NODES),
        "poddisruptionbudgets": ("a",),
        "clusterroles": ("a", "b.c", "all", own),
        "pods": ("a", "b.c", "mirror", own),
        "statefulsets": ("a", "b", own),
        "ipaddresses": ("192.0.2.7", "192.0.2.8", "192.0.2.9"),
        "customresourcedefinitions": ("as.zq.example", "bcs.zq.example", "owns.zq.example"),
        "apiservices": ("v1.a.zq.example", "v1.b.zq.example", "v1.own.zq.example"),
    }.get(plural, ("a", "b.c", own))
    return [whole(target, namespace, name, request) for name in names]


def whole(target: Target, namespace: str, name: str, request: str) -> Object:
    """Return an object under a name that the server takes; `request` is one for a certificate."""
    if target.built_in is None:
        obj: Object = {"apiVersion": target.api_version, "kind": target.kind, "metadata": {}, "spec": {"crew": 1}}
    else:
        obj = minimal(target.built_in, namespace, 1, request)
    obj["metadata"] |= {"name": name, "labels": {"app": "x", "name": name[:60]}}
    match target.plural:
        case "pods":
            obj["spec"] |= {"serviceAccountName": "a" if name == "a" else "default"}
            obj["spec"]["automountServiceAccountToken"] = False
            obj["spec"]["containers"] = [{"name": "c", "image": "busybox", "resources": resources("32Mi")}]
            if name == "mirror":
                obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "written by the kubelet"}
                obj["spec"] |= {"nodeName": "n1", "volumes": [{"name": "v", "configMap": {"name": "b.c"}}]}
                del obj["spec"]["serviceAccountName"]
            if name == "a":
                obj["spec"] |= {"nodeName": "n1", "volumes": [{"name": "s", "secret": {"secretName": "a"}}]}
                address = POD_ADDRESSES[namespace, name]
                ready = [{"type": "Ready", "status": "True"}]
                obj["status"] = {
                    "phase": "Running",
                    "podIP": address,
                    "podIPs": [{"ip": address}],
                    "conditions": ready,
                    "containerStatuses": [STARTED],
                }
        case "serviceaccounts" if name == "a":
            obj["metadata"]["annotations"] = {"kubernetes.io/enforce-mountable-secrets": "true"}
            obj["secrets"] = [{"name": "a"}]
        case "services":
            obj["spec"] = {"clusterIP": "None", "ports": [{"port": 80, "name": "http"}]}
            if name == "outside":
                obj["spec"] = {"type": "ExternalName", "externalName": OUTSIDE}
        case "endpointslices":
            # Service b of each namespace leads to the other one's pod.
            elsewhere = next(ns for ns in NAMESPACES if ns != namespace) if name == "b.c" else namespace
            obj["metadata"]["labels"]["kubernetes.io/service-name"] = "b" if name == "b.c" else "a"
            obj["ports"] = [{"port": 80, "name": "http"}]
            pod = {"kind": "Pod", "namespace": elsewhere, "name": "a"}
            obj["endpoints"] = [{"addresses": [POD_ADDRESSES[elsewhere, "a"]], "targetRef": pod}]
        case "nodes":
            obj["status"] = {"addresses": [{"type": "InternalIP", "address": NODES.get(name, "10.8.0.3")}]}
        case "clusterroles" if name == "all":
            obj["rules"] = []
            obj["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"part-of": "all"}}]}
        case "clusterroles" if name == "a":
            obj["rules"] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        case "validatingadmissionpolicies" | "mutatingadmissionpolicies" if name in PARAMETERS:
            obj["spec"]["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        case "rolebindings":
            obj["roleRef"]["name"] = "a"
        case "clusterrolebindings":
            obj["roleRef"]["name"] = "a"
        case "limitranges":
            obj["spec"]["limits"] = [{"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}]
        case "customresourcedefinitions" if "." in name:
            plural, _, obj["spec"]["group"] = name.partition(".")
            obj["spec"]["names"] = {"plural": plural, "kind": plural.capitalize()}
        case "apiservices" if "." in name:
            obj["spec"]["version"], _, obj["spec"]["group"] = name.partition(".")
    return obj


def resources(memory: str) -> Object:
    """Return what a container asks for: memory, and a device that a claim may stand for."""
    return {"requests": {"memory": memory, "example.com/x": "1"}, "limits": {"example.com/x": "1"}}


def certificate_request() -> str:
    """Return a request for a certificate, as the API has it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, SHA256())
    return base64.b64encode(signed.public_bytes(Encoding.PEM)).decode()
