"""The FlowSchemas and PriorityLevelConfigurations of every cluster: upstream's mandatory and suggested ones.

The mandatory two of each kind are kept as they are, whatever is done to them, so that there is always a level for the cluster's
owner and one for what nothing else matches. The suggested ones are made where they are missing, and afterwards follow this
table only while their annotation says so.
"""

from __future__ import annotations

from kube.json_object import Object

API_VERSION = "flowcontrol.apiserver.k8s.io/v1"
AUTOUPDATE = "apf.kubernetes.io/autoupdate-spec"
EXEMPT, CATCH_ALL = "exempt", "catch-all"
MANDATORY = frozenset({EXEMPT, CATCH_ALL})

# name, shares, lendable percent, queues, hand size
_LEVELS = (
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
)
QUEUE_LENGTH = 50

_ALL: Object = {"apiGroups": ["*"], "clusterScope": True, "namespaces": ["*"], "resources": ["*"], "verbs": ["*"]}
_ALL_PATHS: Object = {"nonResourceURLs": ["*"], "verbs": ["*"]}


def _group(name: str) -> Object:
    return {"kind": "Group", "group": {"name": name}}


def _user(name: str) -> Object:
    return {"kind": "User", "user": {"name": name}}


def _account(name: str, namespace: str = "kube-system") -> Object:
    return {"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": namespace}}


def _rule(subjects: list[Object], resources: list[Object] | None = None, paths: list[Object] | None = None) -> Object:
    found: Object = {"subjects": subjects}
    if resources:
        found["resourceRules"] = resources
    if paths:
        found["nonResourceRules"] = paths
    return found


def _everything(*subjects: Object) -> Object:
    return _rule(list(subjects), [_ALL], [_ALL_PATHS])


def _leases(verbs: list[str], namespaces: list[str]) -> Object:
    return {"apiGroups": ["coordination.k8s.io"], "namespaces": namespaces, "resources": ["leases"], "verbs": verbs}


def _flow(name: str, precedence: int, level: str, rules: list[Object], method: str = "ByUser") -> Object:
    spec: Object = {
        "matchingPrecedence": precedence,
        "priorityLevelConfiguration": {"name": level},
        "rules": rules,
    }
    if method:
        spec["distinguisherMethod"] = {"type": method}
    return _object("FlowSchema", name, spec)


def _object(kind: str, name: str, spec: Object) -> Object:
    annotation = {AUTOUPDATE: "true"}
    metadata = {"name": name, "annotations": annotation}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def priority_levels() -> list[Object]:
    """Return the levels that a cluster starts with."""
    found = [
        _object("PriorityLevelConfiguration", EXEMPT, {"type": "Exempt", "exempt": _shares(0, 0)}),
        _object(
            "PriorityLevelConfiguration",
            CATCH_ALL,
            {"type": "Limited", "limited": {**_shares(5, 0), "limitResponse": {"type": "Reject"}}},
        ),
    ]
    for name, shares, lendable, queues, hand in _LEVELS:
        queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH}
        limited = {**_shares(shares, lendable), "limitResponse": {"type": "Queue", "queuing": queuing}}
        found.append(_object("PriorityLevelConfiguration", name, {"type": "Limited", "limited": limited}))
    return found


def _shares(nominal: int, lendable: int) -> Object:
    return {"nominalConcurrencyShares": nominal, "lendablePercent": lendable}


def flow_schemas() -> list[Object]:
    """Return the flow schemas that a cluster starts with."""
    everybody = [_group("system:unauthenticated"), _group("system:authenticated")]
    probes = {"nonResourceURLs": ["/healthz", "/readyz", "/livez"], "verbs": ["get"]}
    nodes = _group("system:nodes")
    election = ["get", "create", "update"]
    manager, scheduler = _user("system:kube-controller-manager"), _user("system:kube-scheduler")
    accounts = _group("system:serviceaccounts:kube-system")
    endpoints = {"apiGroups": [""], "namespaces": ["*"], "resources": ["endpoints"], "verbs": ["get", "update"]}
    status = {
        "apiGroups": [""],
        "clusterScope": True,
        "namespaces": ["*"],
        "resources": ["nodes", "nodes/status"],
        "verbs": ["*"],
    }
    return [
        _flow(EXEMPT, 1, EXEMPT, [_everything(_group("system:masters"))], ""),
        _flow("probes", 2, EXEMPT, [_rule(everybody, None, [probes])], ""),
        _flow(
            "system-leader-election",
            100,
            "leader-election",
            [_rule([manager, scheduler, accounts], [_leases(election, ["kube-system"])])],
        ),
        _flow(
            "endpoint-controller",
            150,
            "workload-high",
            [_rule([manager, _account("endpoint-controller")], [endpoints])],
        ),
        _flow("workload-leader-election", 200, "leader-election", [_rule([accounts], [_leases(election, ["*"])])]),
        _flow("system-node-high", 400, "node-high", [_rule([nodes], [status, _leases(["*"], ["*"])])]),
        _flow("system-nodes", 500, "system", [_everything(nodes)]),
        _flow("kube-controller-manager", 800, "workload-high", [_everything(manager)], "ByNamespace"),
        _flow("kube-scheduler", 800, "workload-high", [_everything(scheduler)], "ByNamespace"),
        _flow("kube-system-service-accounts", 900, "workload-high", [_everything(accounts)], "ByNamespace"),
        _flow("service-accounts", 9000, "workload-low", [_everything(_group("system:serviceaccounts"))]),
        _flow("global-default", 9900, "global-default", [_everything(*everybody)]),
        _flow(CATCH_ALL, 10000, CATCH_ALL, [_everything(*everybody)]),
    ]
