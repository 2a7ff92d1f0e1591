from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control.auth.user import UserInfo
from control.registry.strategies import strategy_for
from kube.json_object import Object
from kube.resources import RESOURCES
from tests.unit.control.registry.strategies import cells, created, problems, strategy_of, update_problems


def obj(api_version: str, kind: str, name: str = "x", **parts: Any) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-01-02T11:00:00Z"},
        **parts,
    }


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: f"{r.api_version}/{r.plural}")
def test_every_kind_prints_as_many_cells_as_it_has_columns_even_where_it_is_bare(resource: Any) -> None:
    found = created(obj(resource.api_version, resource.kind))
    cells(found)
    strategy = strategy_for(resource)
    assert all(isinstance(v, str) for v in strategy.fields(found).values())
    strategy.validate(found)
    strategy.warnings(found, None)
    strategy.validate_update(found, copy.deepcopy(found))


def config_map(**parts: Any) -> Object:
    return obj("v1", "ConfigMap", **parts)


def secret(**parts: Any) -> Object:
    return obj("v1", "Secret", **parts)


def rules(*found: Object, kind: str = "Role") -> Object:
    return obj("rbac.authorization.k8s.io/v1", kind, rules=list(found))


def binding(role: Object, *subjects: Object, kind: str = "RoleBinding") -> Object:
    return obj("rbac.authorization.k8s.io/v1", kind, roleRef=role, subjects=list(subjects))


def endpoints(ip: str) -> Object:
    return obj("v1", "Endpoints", subsets=[{"addresses": [{"ip": ip}], "ports": [{"port": 80}]}])


def endpoint_slice(kind: str, *addresses: str) -> Object:
    return obj("discovery.k8s.io/v1", "EndpointSlice", addressType=kind, endpoints=[{"addresses": list(addresses)}])


def ingress(**spec: Any) -> Object:
    return obj("networking.k8s.io/v1", "Ingress", spec=spec)


def path(**parts: Any) -> Object:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    return ingress(rules=[{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend, **parts}]}}])


def claim(**spec: Any) -> Object:
    base = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return obj("v1", "PersistentVolumeClaim", spec={**base, **spec})


def webhooks(**parts: Any) -> Object:
    webhook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://example.com/x"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    version = "admissionregistration.k8s.io/v1"
    return obj(version, "ValidatingWebhookConfiguration", webhooks=[{**webhook, **parts}])


RBAC = "rbac.authorization.k8s.io"
LOOPBACK = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
MAPPED = "must not be an IPv4-mapped IPv6 address"
LINK_LOCAL = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
REFUSED = [
    (config_map(data={"a b": "c"}), f'data[a b]: Invalid value: "a b": {KEY}'),
    (
        config_map(data={"a": "b"}, binaryData={"a": "Yg=="}),
        'data[a]: Invalid value: "a": duplicate of key present in binaryData',
    ),
    (config_map(data={"a": "x" * (1024 * 1024 + 1)}), "[]: Too long: may not be more than 1048576 bytes"),
    (secret(type="kubernetes.io/tls", data={}), "data[tls.crt]: Required value"),
    (
        secret(type="kubernetes.io/service-account-token"),
        "metadata.annotations[kubernetes.io/service-account.name]: Required value",
    ),
    (secret(type="kubernetes.io/dockerconfigjson"), "data[.dockerconfigjson]: Required value"),
    (
        rules({"apiGroups": [""], "resources": ["pods"]}),
        "rules[0].verbs: Required value: verbs must contain at least one value",
    ),
    (
        rules({"verbs": ["get"], "nonResourceURLs": ["/x"]}),
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
    ),
    (
        rules({"verbs": ["get"]}, kind="ClusterRole"),
        "rules[0].resources: Required value: resource rules must supply at least one resource",
    ),
    (
        binding({"kind": "Thing", "name": "r"}),
        'roleRef.kind: Unsupported value: "Thing": supported values: "Role", "ClusterRole"',
    ),
    (
        binding({"kind": "Role", "name": "r"}, {"kind": "Robot", "name": "x"}),
        'subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"',
    ),
    (
        binding(
            {"kind": "ClusterRole", "name": "r"}, {"kind": "ServiceAccount", "name": "x"}, kind="ClusterRoleBinding"
        ),
        "subjects[0].namespace: Required value",
    ),
    (endpoints("127.0.0.1"), f'subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": {LOOPBACK}'),
    (endpoints("169.254.169.254"), f'subsets[0].addresses[0].ip: Invalid value: "169.254.169.254": {LINK_LOCAL}'),
    (endpoint_slice("IPv4", "127.0.0.1"), f'endpoints[0].addresses[0]: Invalid value: "127.0.0.1": {LOOPBACK}'),
    (endpoint_slice("IPv6", "fe80::1"), f'endpoints[0].addresses[0]: Invalid value: "fe80::1": {LINK_LOCAL}'),
    (
        endpoint_slice("IPv6", "::ffff:127.0.0.1"),
        f'endpoints[0].addresses[0]: Invalid value: "::ffff:127.0.0.1": {MAPPED}',
    ),
    (
        endpoint_slice("IPv6", "::ffff:a9fe:a9fe"),
        f'endpoints[0].addresses[0]: Invalid value: "::ffff:a9fe:a9fe": {MAPPED}',
    ),
    (endpoints("::ffff:127.0.0.1"), f'subsets[0].addresses[0].ip: Invalid value: "::ffff:127.0.0.1": {LOOPBACK}'),
    (endpoint_slice("IPv4"), "endpoints[0].addresses: Required value: must contain at least 1 address"),
    (endpoint_slice("", "10.0.0.1"), "addressType: Required value"),
    (
        obj("v1", "Node", status={"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}),
        f'status.addresses[0].address: Invalid value: "127.0.0.1": {LOOPBACK}',
    ),
    (
        obj("v1", "Node", spec={"taints": [{"key": "a", "effect": "Sleep"}]}),
        'metadata.taints[0].effect: Unsupported value: "Sleep": supported values: "NoSchedule", "PreferNoSchedule", '
        '"NoExecute"',
    ),
    (
        obj("coordination.k8s.io/v1", "Lease", spec={"leaseDurationSeconds": 0}),
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
    ),
    (ingress(), "spec: Invalid value: []: either `defaultBackend` or `rules` must be specified"),
    (path(pathType=""), "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"),
    (path(path="x"), 'spec.rules[0].http.paths[0].path: Invalid value: "x": must be an absolute path'),
    (
        path(backend={"service": {"name": "web"}}),
        "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
    ),
    (
        path(backend={}),
        'spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required',
    ),
    (path(path="/a/.."), "spec.rules[0].http.paths[0].path: Invalid value: \"/a/..\": cannot end with '/..'"),
    (
        obj("networking.k8s.io/v1", "IngressClass", spec={"controller": "a.b/c", "parameters": {"kind": "K"}}),
        "spec.parameters.name: Required value",
    ),
    (
        obj("networking.k8s.io/v1", "IngressClass", spec={"controller": "é" * 125 + "/"}),
        "spec.controller: Too long: may not be more than 250 bytes",
    ),
    (
        obj("networking.k8s.io/v1", "NetworkPolicy", spec={"ingress": [{"from": [{}]}]}),
        "spec.ingress[0].from[0]: Required value: must specify a peer",
    ),
    (
        obj(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            spec={"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.1.0.0/25"]}}]}]},
        ),
        'spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "10.1.0.0/25": must be a strict subset of `cidr`',
    ),
    (
        obj("networking.k8s.io/v1", "NetworkPolicy", spec={"egress": [{"to": [{"ipBlock": {"cidr": "fd00::%x/64"}}]}]}),
        'spec.egress[0].to[0].ipBlock.cidr: Invalid value: "fd00::%x/64": '
        "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
    ),
    (
        obj("networking.k8s.io/v1", "NetworkPolicy", spec={"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.1"}}]}]}),
        'spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1": '
        "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
    ),
    (
        obj("networking.k8s.io/v1", "ServiceCIDR", spec={"cidrs": ["fd00::%x/112"]}),
        'spec.cidrs[0]: Invalid value: "fd00::%x/112": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)',
    ),
    (
        obj("policy/v1", "PodDisruptionBudget", spec={"minAvailable": 1, "maxUnavailable": 1}),
        'spec: Invalid value: {"minAvailable":1,"maxUnavailable":1}: minAvailable and maxUnavailable cannot be both set',
    ),
    (
        obj("autoscaling/v2", "HorizontalPodAutoscaler", spec={"minReplicas": 3, "maxReplicas": 2}),
        "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`",
    ),
    (claim(accessModes=[]), "spec.accessModes: Required value: at least 1 access mode is required"),
    (claim(resources={}), "spec.resources[storage]: Required value"),
    (obj("storage.k8s.io/v1", "StorageClass"), "provisioner: Required value"),
    (
        obj("scheduling.k8s.io/v1", "PriorityClass", value=2_000_000_000),
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
    ),
    (
        webhooks(sideEffects="Some"),
        'webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
    ),
    (
        webhooks(name="short"),
        'webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated by dots',
    ),
    (webhooks(clientConfig={}), "webhooks[0].clientConfig: Required value: exactly one of url or service is required"),
    (
        obj("apiextensions.k8s.io/v1", "CustomResourceDefinition", spec={"group": "g.io", "names": {"plural": "as"}}),
        'metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group',
    ),
    (
        obj("v1", "LimitRange", spec={"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}),
        'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
    ),
    (
        obj("v1", "Event", involvedObject={"kind": "Pod", "namespace": "other"}),
        'involvedObject.namespace: Invalid value: "other": does not match event.namespace',
    ),
    (
        obj("resource.k8s.io/v1", "ResourceClaim", spec={"devices": {"requests": [{"name": "a", "exactly": {}}]}}),
        "spec.devices.requests[0].exactly.deviceClassName: Required value",
    ),
    (
        obj("resource.k8s.io/v1", "ResourceClaim", spec={"devices": {"requests": [{"name": "a"}]}}),
        "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
    ),
    (
        obj("resource.k8s.io/v1", "ResourceSlice", spec={"pool": {"name": "p"}, "allNodes": True}),
        "spec.driver: Required value",
    ),
    (
        obj("networking.k8s.io/v1", "IPAddress", "10.9.8.300", spec={}),
        'metadata.name: Invalid value: "10.9.8.300": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
    ),
]


@pytest.mark.parametrize(("found", "message"), REFUSED, ids=[f"{o['kind']} {m[:60]}" for o, m in REFUSED])
def test_a_bad_object_is_refused_in_upstreams_words(found: Object, message: str) -> None:
    assert message in problems(found)


def changed(found: Object, **parts: Any) -> tuple[Object, Object]:
    old = created(found)
    return old, {**copy.deepcopy(old), **parts}


FROZEN = "field is immutable when `immutable` is set"
UPDATES = [
    (*changed(config_map(data={"a": "b"}, immutable=True), data={"a": "c"}), f"data: Forbidden: {FROZEN}"),
    (*changed(config_map(immutable=True), immutable=False), f"immutable: Forbidden: {FROZEN}"),
    (*changed(secret(), type="other"), 'type: Invalid value: "other": field is immutable'),
    (
        *changed(binding({"apiGroup": RBAC, "kind": "Role", "name": "a"}), roleRef={"kind": "Role", "name": "b"}),
        'roleRef: Invalid value: {"kind":"Role","name":"b","apiGroup":"rbac.authorization.k8s.io"}: cannot change roleRef',
    ),
    (
        *changed(endpoint_slice("IPv4", "10.0.0.1"), addressType="FQDN"),
        'addressType: Invalid value: "FQDN": field is immutable',
    ),
    (
        *changed(obj("storage.k8s.io/v1", "StorageClass", provisioner="a"), provisioner="b"),
        "provisioner: Forbidden: updates to provisioner are forbidden.",
    ),
    (
        *changed(obj("scheduling.k8s.io/v1", "PriorityClass", value=1), value=2),
        "value: Forbidden: may not be changed in an update.",
    ),
    (
        *changed(obj("node.k8s.io/v1", "RuntimeClass", handler="a"), handler="b"),
        'handler: Invalid value: "b": field is immutable',
    ),
    (
        *changed(claim(), spec={**claim()["spec"], "accessModes": ["ReadWriteMany"]}),
        "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for "
        'bound claims\n-  accessModes[0]: "ReadWriteOnce"\n+  accessModes[0]: "ReadWriteMany"',
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), UPDATES, ids=[f"{o['kind']} {m[:50]}" for o, _, m in UPDATES])
def test_changes_of_immutable_fields_are_reported_with_upstreams_messages(
    old: Object, new: Object, message: str
) -> None:
    assert message in update_problems(old, new)


def test_a_range_that_is_none_may_stay_in_a_stored_policy_but_not_come_into_one() -> None:
    def policy(*exceptions: str) -> Object:
        block = {"cidr": "fd00::%x/8", "except": list(exceptions)}
        return obj("networking.k8s.io/v1", "NetworkPolicy", spec={"egress": [{"to": [{"ipBlock": block}]}]})

    strategy = strategy_of(policy())
    assert strategy.validate_update(policy("fd00:1::/64"), policy()) == []
    assert [each.path for each in strategy.validate_update(policy("fd00:1::%x/64"), policy())] == [
        "spec.egress[0].to[0].ipBlock.except[0]"
    ]


def test_a_namespace_is_born_active_with_its_finalizer_and_its_name_as_a_label() -> None:
    found = created(obj("v1", "Namespace", "web"))
    assert found["status"] == {"phase": "Active"}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": "web"}
    assert strategy_of(found).name_errors("a.b") == ["must not contain dots"]


def test_text_of_a_secret_is_merged_into_its_data() -> None:
    found = created(secret(data={"a": "YQ=="}, stringData={"b": "c", "a": "z"}))
    assert found["data"] == {"a": "eg==", "b": "Yw=="}
    assert "stringData" not in found


def request(names: list[x509.NameAttribute]) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    built = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(key, hashes.SHA256())
    return base64.b64encode(built.public_bytes(serialization.Encoding.PEM)).decode()


async def test_the_server_records_the_requesting_user_of_a_certificate() -> None:
    spec = {
        "request": request([x509.NameAttribute(NameOID.COMMON_NAME, "jane")]),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
        "username": "root",
    }
    found = created(obj("certificates.k8s.io/v1", "CertificateSigningRequest", spec=spec))
    strategy = strategy_of(found)

    class Asked:
        user = UserInfo("jane", groups=("devs",), extra={"k": ("v",)})
        dry_run = False

    await strategy.allocate(found, None, Asked())  # type: ignore[arg-type]
    assert found["spec"]["username"] == "jane"
    assert found["spec"]["groups"] == ["devs"]
    assert found["spec"]["extra"] == {"k": ["v"]}
    assert strategy.validate(found) == []
    assert cells(found) == {
        "Name": "x",
        "Age": "60m",
        "SignerName": "kubernetes.io/kube-apiserver-client",
        "Requestor": "jane",
        "RequestedDuration": "<none>",
        "Condition": "Pending",
    }
    approved = copy.deepcopy(found)
    approved["spec"]["username"] = "root"
    approved["status"] = {"conditions": [{"type": "Approved", "status": "True"}], "certificate": "Yg=="}
    assert update_problems(found, approved, "approval") == []
    strategy.prepare_subresource("approval", approved, found)
    assert approved["spec"]["username"] == "jane"
    assert approved["status"] == {"conditions": [{"type": "Approved", "status": "True"}]}
    both = {"status": {"conditions": [{"type": kind, "status": "True"} for kind in ("Approved", "Denied")]}}
    assert update_problems(approved, {**approved, **both}, "approval") == [
        'status.conditions[1].type: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive'
    ]


def test_a_request_that_is_none_is_refused() -> None:
    spec = {"request": base64.b64encode(b"hello").decode(), "signerName": "example.com/x", "usages": ["client auth"]}
    found = problems(obj("certificates.k8s.io/v1", "CertificateSigningRequest", spec=spec))
    assert found[0].endswith("PEM block type must be CERTIFICATE REQUEST")


def test_names_follow_their_kinds_rules() -> None:
    def wrong(api_version: str, kind: str, name: str) -> bool:
        found = obj(api_version, kind)
        return bool(strategy_of(found).name_errors(name))

    assert not wrong("v1", "Service", "1abc") and wrong("v1", "Service", "a.b") and not wrong("v1", "Pod", "1abc.d")
    assert not wrong("certificates.k8s.io/v1", "CertificateSigningRequest", "node-csr-c69HXe7aYcq_S1")
    assert not wrong("apiregistration.k8s.io/v1", "APIService", "v1.")
    assert not wrong(f"{RBAC}/v1", "ClusterRole", "system:node") and wrong(f"{RBAC}/v1", "ClusterRole", "a/b")
    assert wrong("networking.k8s.io/v1", "IPAddress", "010.0.0.1")
    assert wrong("networking.k8s.io/v1", "IPAddress", "fd00::1%x")
    assert wrong("batch/v1", "CronJob", "x" * 53) and not wrong("batch/v1", "CronJob", "x" * 52)


def test_an_ingress_names_any_service_that_may_exist() -> None:
    def refused(name: str) -> bool:
        return bool(problems(path(backend={"service": {"name": name, "port": {"number": 80}}})))

    assert not refused("1abc") and refused("a.b") and refused("-a")


def test_one_address_and_the_list_of_addresses_stay_in_step() -> None:
    node = created(obj("v1", "Node", spec={"podCIDR": "10.244.1.0/24"}))
    assert node["spec"] == {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}
    pod = obj("v1", "Pod", spec={}, status={"podIP": "10.244.1.5", "hostIPs": [{"ip": "192.168.0.2"}]})
    strategy_of(pod).default(pod)
    assert pod["status"]["podIPs"] == [{"ip": "10.244.1.5"}]
    assert pod["status"]["hostIP"] == "192.168.0.2"


def test_old_ways_are_warned_of() -> None:
    found = ingress(defaultBackend={"service": {"name": "web", "port": {"number": 80}}})
    found["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "x"}
    assert strategy_of(found).warnings(found, None) == [
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
    ]
    assert strategy_of(endpoints("10.0.0.1")).api_warning.startswith("v1 Endpoints is deprecated in v1.33+")
    pod = obj("v1", "Pod", spec={"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": [{"name": "c"}]})
    pod["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    assert strategy_of(pod).warnings(pod, None) == [
        'spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead',
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
    ]


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        ({}, "x"),
        ({"storageclass.kubernetes.io/is-default-class": "true"}, "x (default)"),
        ({"storageclass.beta.kubernetes.io/is-default-class": "true"}, "x (default)"),
        ({"storageclass.kubernetes.io/is-default-class": "false"}, "x"),
    ],
)
def test_tables_show_default_storage_classes(annotations: dict[str, str], name: str) -> None:
    shown = obj("storage.k8s.io/v1", "StorageClass", provisioner="a")
    shown["metadata"]["annotations"] = annotations
    assert cells(shown)["Name"] == name
