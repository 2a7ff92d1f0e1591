"""Pods and namespaces of a policy table, and the rulesets made of it."""

from kube.api import networking_v1
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import facts_of
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.ruleset import Ruleset
from netproxy.policy.table import PolicyTable
from netproxy.slim_objects import SlimPod
from tests.support.policies import pod

WEB, DB, OTHER = "10.244.1.2", "10.244.1.3", "10.244.1.4"
FAR_WEB, FAR_OTHER = "10.244.2.2", "10.244.2.4"
WORLD = "203.0.113.5"
EVERYBODY, GROUP = "255.255.255.255", "224.0.0.1"
NODE = ("192.168.0.1", "10.244.1.1", "10.96.5.1")
"""The node's own addresses: IPVS binds those of Services to it too."""
PODS = [
    pod("web", WEB, labels={"app": "web"}, ports={"http": ("TCP", 8080), "metrics": ("UDP", 9100)}),
    pod("db", DB, labels={"app": "db"}, ports={"sql": ("TCP", 5432)}),
    pod("other", OTHER, namespace="other", labels={"app": "web"}, ports={"sql": ("TCP", 6543)}),
    pod("far-web", FAR_WEB, node="node-2", labels={"app": "web"}, ports={"http": ("TCP", 8081)}),
    pod("far-other", FAR_OTHER, namespace="other", node="node-2", labels={"app": "db"}, ports={"sql": ("TCP", 7654)}),
    pod("agent", "192.168.0.1", labels={"app": "web"}, host_network=True),
]
NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}}


def filled(*policies: networking_v1.NetworkPolicy, pods: list[SlimPod] | None = None) -> PolicyTable:
    table = PolicyTable()
    for name, labels in NAMESPACES.items():
        table.set_namespace(name, labels)
    for each in PODS if pods is None else pods:
        table.set_pod(f"{each.metadata.namespace}/{each.metadata.name}", facts_of(each, "node-1"))
    for given in policies:
        table.set_policy(parse(given))
    return table


def made(table: PolicyTable, family: int = 4, *, ipvs: bool = True) -> Ruleset:
    rulesets = RulesetBuilder(table, family, ipvs=ipvs)
    rulesets.ranges = ("10.244.1.0/24",) if family == 4 else ("fd00:1::/64",)
    return rulesets.build()


WEB_ONLY = {"podSelector": {"matchLabels": {"app": "web"}}}
