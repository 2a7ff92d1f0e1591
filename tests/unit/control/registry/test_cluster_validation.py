"""Validation of roles, classes, drivers, webhooks, flows and API services: a change to a valid object, the exact error."""

from __future__ import annotations

from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import created, problems, update_problems

REGISTRATION, FLOW = "admissionregistration.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1"
STORAGE, RBAC = "storage.k8s.io/v1", "rbac.authorization.k8s.io/v1"
FORM = "desired format: https://host[/path]"


def obj(api_version: str, kind: str, name: str = "x", **parts: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **parts}


def webhook(**parts: Any) -> Object:
    base: Object = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://a.example.com/x"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return obj(REGISTRATION, "MutatingWebhookConfiguration", webhooks=[{**base, **parts}])


def rule(**parts: Any) -> Object:
    base = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return webhook(rules=[{**base, **parts}])


def at(url: str) -> Object:
    return webhook(clientConfig={"url": url})


def to_service(**parts: Any) -> Object:
    return webhook(clientConfig={"service": {"name": "s", "namespace": "n", **parts}})


def flow(*rules: Object, **spec: Any) -> Object:
    base = {"priorityLevelConfiguration": {"name": "p"}, "rules": list(rules)}
    return obj(FLOW, "FlowSchema", spec={**base, **spec})


def chosen(subject: Object | None = None, **parts: Any) -> Object:
    subjects = [subject or {"kind": "User", "user": {"name": "*"}}]
    resources = {"verbs": ["get"], "apiGroups": [""], "resources": ["*"], "clusterScope": True, **parts}
    return flow({"subjects": subjects, "resourceRules": [resources]})


def level(**limited: Any) -> Object:
    return obj(FLOW, "PriorityLevelConfiguration", spec={"type": "Limited", "limited": limited})


def queued(**queuing: Any) -> Object:
    return level(limitResponse={"type": "Queue", "queuing": queuing})


def driver(**spec: Any) -> Object:
    return obj(STORAGE, "CSIDriver", spec=spec)


def node(**parts: Any) -> Object:
    return obj(STORAGE, "CSINode", spec={"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": None, **parts}]})


def storage_class(**parts: Any) -> Object:
    return obj(STORAGE, "StorageClass", provisioner="example.com/p", **parts)


def attachment(**spec: Any) -> Object:
    base = {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    return obj(STORAGE, "VolumeAttachment", spec={**base, **spec})


def api_service(**spec: Any) -> Object:
    base = {"group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    return obj("apiregistration.k8s.io/v1", "APIService", "v1.g.example.com", spec={**base, **spec})


def runtime(**parts: Any) -> Object:
    return obj("node.k8s.io/v1", "RuntimeClass", handler="runc", **parts)


ODD_VALUE = {"key": "a", "operator": "In", "values": ["not a value"]}
W, R, F = "webhooks[0]", "webhooks[0].rules[0]", "spec.rules[0]"
REFUSED = [
    (
        webhook(reinvocationPolicy="Odd"),
        f'{W}.reinvocationPolicy: Unsupported value: "Odd": supported values: "IfNeeded", "Never"',
    ),
    (
        webhook(admissionReviewVersions=["v1", "v1"]),
        f'{W}.admissionReviewVersions[1]: Invalid value: "v1": duplicate version',
    ),
    (
        webhook(admissionReviewVersions=["v9"]),
        f'{W}.admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1',
    ),
    (webhook(matchConditions=[{}] * 65), f"{W}.matchConditions: Too many: 65: must have at most 64 items"),
    (webhook(clientConfig={}), f"{W}.clientConfig: Required value: exactly one of url or service is required"),
    (at("http://a"), f"{W}.clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; {FORM}"),
    (at("https:///x"), f'{W}.clientConfig.url: Invalid value: "": host must be specified; {FORM}'),
    (at("https://u@a"), f'{W}.clientConfig.url: Invalid value: "u": user information is not permitted in the URL'),
    (at("https://a?b=c"), f'{W}.clientConfig.url: Invalid value: "b=c": query parameters are not permitted in the URL'),
    (at("https://a#b"), f'{W}.clientConfig.url: Invalid value: "b": fragments are not permitted in the URL'),
    (
        at("https://a:b"),
        f"{W}.clientConfig.url: Required value: url must be a valid URL: "
        f'parse "https://a:b": invalid port ":b" after host; {FORM}',
    ),
    (to_service(name=""), f"{W}.clientConfig.service.name: Required value"),
    (
        to_service(port=0),
        f"{W}.clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
    ),
    (webhook(sideEffects=None), f"{W}.sideEffects: Required value: must specify one of None, NoneOnDryRun"),
    (
        webhook(sideEffects="Some"),
        f'{W}.sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
    ),
    (webhook(failurePolicy=""), f'{W}.failurePolicy: Unsupported value: "": supported values: "Fail", "Ignore"'),
    (
        rule(resources=["*", "pods"]),
        f'{R}.resources: Invalid value: ["*","pods"]: '
        "if '*' is present, must not specify other resources without subresources",
    ),
    (
        to_service(port=70000),
        f"{W}.clientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
    ),
    (to_service(path="a"), f"{W}.clientConfig.service.path: Invalid value: \"a\": must start with a '/'"),
    (to_service(path="/a//b"), f'{W}.clientConfig.service.path: Invalid value: "/a//b": segment[1] may not be empty'),
    (
        rule(operations=["*", "CREATE"]),
        f'{R}.operations: Invalid value: ["*","CREATE"]: if \'*\' is present, must not specify other operations',
    ),
    (rule(apiVersions=[""]), f"{R}.apiVersions[0]: Required value"),
    (
        rule(resources=["pods/*", "pods/log"]),
        f"{R}.resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log",
    ),
    (
        rule(resources=["*/scale", "pods/scale"]),
        f"{R}.resources[1]: Invalid value: \"pods/scale\": if '*/scale' is present, must not specify pods/scale",
    ),
    (
        rule(resources=["*/*", "pods"]),
        f'{R}.resources: Invalid value: ["*/*","pods"]: if \'*/*\' is present, must not specify other resources',
    ),
    (
        rule(resources=["*", "pods"]),
        f'{R}.resources: Invalid value: ["*","pods"]: if \'*\' is present, must not specify other resources without '
        "subresources",
    ),
    (flow(matchingPrecedence=-1), "spec.matchingPrecedence: Invalid value: -1: must be a positive value"),
    (flow(matchingPrecedence=10001), "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"),
    (
        flow(matchingPrecedence=1),
        "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
    ),
    (flow({}), f"{F}.subjects: Required value: subjects must contain at least one value"),
    (
        chosen({"kind": "Robot"}),
        f'{F}.subjects[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"',
    ),
    (
        chosen({"kind": "User"}),
        f"{F}.subjects[0].user: Required value: user is required when subject kind is 'User'",
    ),
    (
        chosen({"kind": "User", "user": {"name": "a"}, "group": {"name": "g"}}),
        f"{F}.subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
    ),
    (
        chosen({"kind": "ServiceAccount", "serviceAccount": {"name": "a"}}),
        f"{F}.subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account",
    ),
    (
        chosen(verbs=["*", "get"]),
        f'{F}.resourceRules[0].verbs: Invalid value: ["*","get"]: if \'*\' is present, must not specify other verbs',
    ),
    (
        chosen(clusterScope=False),
        f"{F}.resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least "
        "one namespace",
    ),
    (
        level(limitResponse={"type": "Reject"}, lendablePercent=101),
        "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
    ),
    (
        level(limitResponse={"type": "Reject", "queuing": {}}),
        "spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited",
    ),
    (
        queued(queues=4, handSize=8),
        "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: should not be greater than queues (4)",
    ),
    (
        queued(queues=1024, handSize=8),
        "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 1024 and handSize "
        "8 should not be greater than 60",
    ),
    (
        obj(RBAC, "ClusterRole", aggregationRule={}),
        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule "
        "is non-nil",
    ),
    (
        obj(RBAC, "ClusterRole", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "-"}}]}),
        'aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: "-": a valid label must be an empty string or '
        "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
        "'MyValue',  or 'my_value',  or '12345', regex used for validation is "
        "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    ),
    (
        driver(tokenRequests=[{"audience": "a"}, {"audience": "a"}]),
        'spec.tokenRequests[1].audience: Duplicate value: "a"',
    ),
    (
        driver(tokenRequests=[{"audience": "a", "expirationSeconds": 60}]),
        "spec.tokenRequests[0].expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes",
    ),
    (
        driver(fsGroupPolicy="Odd"),
        'spec.fsGroupPolicy: Unsupported value: "Odd": supported values: "File", "None", "ReadWriteOnceWithFSType"',
    ),
    (node(nodeID="n" * 257), f'spec.drivers[0].nodeID: Invalid value: "{"n" * 257}": must be 256 characters or less'),
    (node(topologyKeys=["a", "a"]), 'spec.drivers[0]: Duplicate value: "a"'),
    (
        node(allocatable={"count": -1}),
        "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        storage_class(allowedTopologies=[{"matchLabelExpressions": [{"key": "a", "values": []}]}]),
        "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
    ),
    (
        storage_class(allowedTopologies=[{"matchLabelExpressions": [{"key": "a", "values": ["b", "b"]}]}]),
        'allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "b"',
    ),
    (
        attachment(source={"persistentVolumeName": "v", "inlineVolumeSpec": {}}),
        "spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
    ),
    (attachment(attacher=""), "spec.attacher: Required value"),
    (
        api_service(insecureSkipTLSVerify=True),
        "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
    ),
    (
        api_service(caBundle="AAAA", insecureSkipTLSVerify=True, service={"name": "s", "namespace": "n"}),
        "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
    ),
    (
        api_service(caBundle="AAAA"),
        'spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle',
    ),
    (
        runtime(overhead={"podFixed": {"gold": "1"}}),
        'overhead.limits[gold]: Invalid value: "gold": must be a standard resource for containers',
    ),
    (
        runtime(scheduling={"tolerations": [{"operator": "Exists"}] * 2}),
        'scheduling.tolerations[1]: Duplicate value: {"operator":"Exists"}',
    ),
]


@pytest.mark.parametrize(("found", "message"), REFUSED, ids=[f"{o['kind']} {m[:70]}" for o, m in REFUSED])
def test_a_bad_object_is_refused_in_upstreams_words(found: Object, message: str) -> None:
    assert message in problems(found)


GOOD = [
    rule(resources=["pods", "pods/*", "*/scale"]),
    rule(resources=["*", "*/*"][:1]),
    rule(resources=["pods", "*"]),
    to_service(path="/a/b/"),
    to_service(path=""),
    chosen({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "n"}}),
    queued(queues=64, handSize=6, queueLengthLimit=50),
    driver(tokenRequests=[{"audience": ""}, {"audience": "a", "expirationSeconds": 600}]),
    node(topologyKeys=["example.com/zone"], allocatable={"count": 5}),
    storage_class(allowedTopologies=[{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}]),
    attachment(),
    api_service(service={"name": "s", "namespace": "n"}, caBundle="AAAA"),
    runtime(overhead={"podFixed": {"memory": "1Gi"}}, scheduling={"nodeSelector": {"a": "b"}}),
]


@pytest.mark.parametrize("found", GOOD, ids=lambda o: o["kind"])
def test_a_good_object_is_accepted(found: Object) -> None:
    assert problems(found) == []


UPDATES = [
    (
        storage_class(),
        storage_class(volumeBindingMode="WaitForFirstConsumer"),
        ['volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable'],
    ),
    (
        storage_class(),
        storage_class(parameters={"a": "b"}),
        ["parameters: Forbidden: updates to parameters are forbidden."],
    ),
    (storage_class(), storage_class(allowVolumeExpansion=True), []),
    (webhook(sideEffects="Some"), webhook(sideEffects="Unknown"), []),
    (
        webhook(),
        webhook(sideEffects="Some"),
        [f'{W}.sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'],
    ),
    (webhook(admissionReviewVersions=["v9"]), webhook(admissionReviewVersions=["v8"]), []),
    (
        webhook(objectSelector={"matchExpressions": [ODD_VALUE]}),
        webhook(objectSelector={"matchExpressions": [ODD_VALUE] * 2}),
        [],
    ),
    (
        webhook(matchConditions=[{"name": "a", "expression": "wrong("}]),
        webhook(matchConditions=[{"name": "a", "expression": "wrong("}], timeoutSeconds=3),
        [],
    ),
    (node(), node(allocatable={"count": 3}), []),
    (
        node(),
        node(nodeID="other"),
        [
            'spec.drivers: Invalid value: {"Name":"d","NodeID":"other","TopologyKeys":null,"Allocatable":null}: field is '
            "immutable"
        ],
    ),
]


@pytest.mark.parametrize(("old", "new", "output"), UPDATES, ids=[f"{o['kind']} {s}"[:80] for o, _, s in UPDATES])
def test_what_may_change_of_a_class_or_a_nodes_drivers(old: Object, new: Object, output: list[str]) -> None:
    assert update_problems(created(old), created(new)) == output


def test_flow_schemas_name_valid_paths_and_a_valid_priority_level() -> None:
    urls = ["x", "/a/*/b", "/a//b", "/a b", "/metrics/*", "/", "/healthz"]
    everybody = {"kind": "User", "user": {"name": "*"}}
    one = {"subjects": [everybody], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": urls}]}
    schema = obj(
        FLOW, "FlowSchema", spec={"priorityLevelConfiguration": {"name": "X_"}, "matchingPrecedence": 5, "rules": [one]}
    )
    level, *found = problems(schema)
    assert level.startswith('spec.priorityLevelConfiguration.name: Invalid value: "X_"')
    where = "spec.rules[0].nonResourceRules[0].nonResourceURLs"
    assert found == [
        f'{where}[0]: Invalid value: "x": must start with slash',
        f'{where}[1]: Invalid value: "/a/*/b": wildcard can only do suffix matching',
        f'{where}[2]: Invalid value: "/a//b": must not contain double slash',
        f'{where}[3]: Invalid value: "/a b": must not contain white-space',
    ]
