"""The flow schema of a request by upstream's own configuration, and its flow distinguisher."""

from typing import Any

import pytest

from control.auth.user import UserInfo
from control.fairness import defaults
from control.fairness.fairness import Fairness
from control.interfaces.requestinfo import parse_path, with_query
from kube.selectors import FieldSelector

AUTHENTICATED = "system:authenticated"


def user(name: str, *groups: str) -> UserInfo:
    return UserInfo(name, groups=(*groups, AUTHENTICATED))


NODE = user("system:node:a", "system:nodes")
MANAGER, SCHEDULER = user("system:kube-controller-manager"), user("system:kube-scheduler")
SYSTEM = user("system:serviceaccount:kube-system:robot", "system:serviceaccounts", "system:serviceaccounts:kube-system")
ROBOT = user("system:serviceaccount:shop:robot", "system:serviceaccounts", "system:serviceaccounts:shop")
ANONYMOUS = UserInfo("system:anonymous", groups=("system:unauthenticated",))
LEASES = "/apis/coordination.k8s.io/v1/namespaces"


@pytest.mark.parametrize(
    ("who", "method", "path", "schema", "level"),
    [
        (user("root", "system:masters"), "GET", "/api/v1/pods", "exempt", "exempt"),
        (ANONYMOUS, "GET", "/readyz", "probes", "exempt"),
        (ANONYMOUS, "GET", "/version", "global-default", "global-default"),
        (MANAGER, "PUT", f"{LEASES}/kube-system/leases/x", "system-leader-election", "leader-election"),
        (MANAGER, "PUT", f"{LEASES}/other/leases/x", "kube-controller-manager", "workload-high"),
        (SYSTEM, "PUT", f"{LEASES}/other/leases/x", "workload-leader-election", "leader-election"),
        (MANAGER, "PUT", "/api/v1/namespaces/shop/endpoints/web", "endpoint-controller", "workload-high"),
        (SCHEDULER, "POST", "/api/v1/namespaces/shop/pods/x/binding", "kube-scheduler", "workload-high"),
        (NODE, "PUT", f"{LEASES}/kube-node-lease/leases/a", "system-node-high", "node-high"),
        (NODE, "PATCH", "/api/v1/nodes/a/status", "system-node-high", "node-high"),
        (NODE, "GET", "/api/v1/pods", "system-nodes", "system"),
        (SYSTEM, "GET", "/api/v1/pods", "kube-system-service-accounts", "workload-high"),
        (ROBOT, "GET", "/api/v1/namespaces/shop/pods", "service-accounts", "workload-low"),
        (user("mary"), "GET", "/api/v1/pods", "global-default", "global-default"),
        (UserInfo("nobody"), "GET", "/api/v1/pods", "catch-all", "catch-all"),
    ],
)
def test_the_first_schema_by_precedence_that_matches(
    who: UserInfo, method: str, path: str, schema: str, level: str
) -> None:
    fairness = Fairness(600, 15)
    flow = fairness.flow(who, with_query(parse_path(method, path), watch=False, fields=FieldSelector()))
    assert (flow.schema, flow.level.name) == (schema, level)


def test_seats_follow_the_shares() -> None:
    levels = Fairness(600, 15).levels
    assert {name: level.nominal for name, level in levels.items() if not level.exempt} == {
        "system": 74,
        "node-high": 98,
        "leader-election": 25,
        "workload-high": 98,
        "workload-low": 245,
        "global-default": 49,
        "catch-all": 13,
    }


def test_users_are_distinguished_and_get_different_hands() -> None:
    fairness = Fairness(600, 15)
    info = parse_path("GET", "/api/v1/pods")
    hands = {fairness.flow(user(f"user-{n}"), info).hand for n in range(20)}
    assert len(hands) > 15 and all(len(set(hand)) == 6 for hand in hands)
    assert fairness.flow(user("user-1"), info).hand == fairness.flow(user("user-1"), info).hand
    masters = user("root", "system:masters")
    assert fairness.flow(masters, info).level.exempt


def changed(spec: dict[str, Any]) -> Fairness:
    fairness = Fairness(600, 15)
    schema = {"metadata": {"name": "mine", "uid": "u1"}, "spec": {"matchingPrecedence": 10, **spec}}
    fairness.configure([*defaults.flow_schemas(), schema], defaults.priority_levels())
    return fairness


def test_a_schema_of_ones_own_comes_first_where_its_level_exists() -> None:
    subject = {"kind": "User", "user": {"name": "mary"}}
    only_pods = {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["shop"]}
    rules = [{"subjects": [subject], "resourceRules": [only_pods]}]
    fairness = changed({"priorityLevelConfiguration": {"name": "workload-low"}, "rules": rules})
    mary = user("mary")
    here = fairness.flow(mary, parse_path("GET", "/api/v1/namespaces/shop/pods"))
    assert here.schema == "mine" and here.headers[0] == (b"x-kubernetes-pf-flowschema-uid", b"u1")
    assert fairness.flow(mary, parse_path("GET", "/api/v1/pods")).schema == "global-default", "not all namespaces"
    assert fairness.flow(mary, parse_path("GET", "/api/v1/namespaces/shop/pods/x")).schema == "global-default"
    fairness = changed({"priorityLevelConfiguration": {"name": "nowhere"}, "rules": rules})
    assert fairness.flow(mary, parse_path("GET", "/api/v1/namespaces/shop/pods")).schema == "global-default"


def test_a_level_that_did_not_change_keeps_those_who_wait_in_it() -> None:
    fairness = Fairness(600, 15)
    before = dict(fairness.levels)
    fairness.configure(defaults.flow_schemas(), defaults.priority_levels())
    assert all(fairness.levels[name] is level for name, level in before.items())
    fairness.configure([], [])
    assert set(fairness.levels) == {"exempt", "catch-all"}
