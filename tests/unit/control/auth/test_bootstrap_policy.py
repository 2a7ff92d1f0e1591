"""The default roles beside upstream's.

upstream_policy.txt holds the facts of v1.36's default policy (all feature gates at their defaults): a line for each role's
labels, for each set of verbs that a role has on some resources or paths, and for each binding.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import yaml

from control.auth.bootstrap_policy import default_policy
from control.auth.joining_policy import joining_policy
from kube import daemon_roles
from kube.json_object import Object

UPSTREAM = Path(__file__).with_name("upstream_policy.txt")
OURS = {
    "ClusterRole system:aggregated-metrics-reader",  # metrics-server's, whose place Wherry takes
    "ClusterRole system:controller:addon-controller",
    "ClusterRole system:controller:gateway-controller",
    "ClusterRole system:controller:local-path-provisioner",
    "ClusterRole wherry:certificate-approver",
    "ClusterRole wherry:gateway",
    "ClusterRole wherry:gateway-edit",
    "ClusterRole wherry:gateway-view",
    "ClusterRole wherry:journal",
    "ClusterRole wherry:network-policy",
    "ClusterRoleBinding system:controller:addon-controller",
    "ClusterRoleBinding system:controller:gateway-controller",
    "ClusterRoleBinding system:controller:local-path-provisioner",
    "ClusterRoleBinding wherry:certificate-approver",
    "ClusterRoleBinding wherry:gateway",
    "ClusterRoleBinding wherry:journal",
    "ClusterRoleBinding wherry:network-policy",
    "Role system:controller:gateway-controller",
    "Role wherry:gateway",
    "RoleBinding system:controller:gateway-controller",
    "RoleBinding wherry:gateway",
}


def facts(obj: Object) -> Iterator[str]:
    """Yield the lines that say what a role or binding gives."""
    metadata = obj["metadata"]
    who = " ".join((obj["kind"], "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))))
    if "roleRef" in obj:
        subjects = sorted(
            f"{s['kind']}:{'/'.join(filter(None, (s.get('namespace'), s['name'])))}" for s in obj.get("subjects", ())
        )
        yield " ".join((who, "=", obj["roleRef"]["kind"], obj["roleRef"]["name"], *subjects))
        return
    labels = sorted(label for label in metadata["labels"] if "aggregate" in label)
    selectors = (obj.get("aggregationRule") or {}).get("clusterRoleSelectors", ())
    selects = sorted(label for selector in selectors for label in selector["matchLabels"])
    yield f"{who} : labels {' '.join(labels) or '-'} selects {' '.join(selects) or '-'}"
    verbs = defaultdict(set)
    for rule in obj["rules"]:
        targets = list(rule.get("nonResourceURLs", ()))
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                plain = f"{resource}.{group}" if group else resource
                targets += [f"{plain} {name}" for name in rule.get("resourceNames", ())] or [plain]
        for target in targets:
            verbs[target] |= set(rule["verbs"])
    together = defaultdict(list)
    for target, found in verbs.items():
        together[",".join(sorted(found))].append(target)
    for found_, targets in together.items():
        yield f"{who} {found_} [{'; '.join(sorted(targets))}]"


def test_the_default_roles_and_bindings_are_upstreams_and_a_few_of_ours() -> None:
    objects = {f"{o['kind']} {o['metadata']['name']}": o for o in default_policy()}
    assert objects.keys() >= OURS
    found = {line for o in default_policy() if f"{o['kind']} {o['metadata']['name']}" not in OURS for line in facts(o)}
    wanted = set(UPSTREAM.read_text().splitlines())
    assert (sorted(wanted - found), sorted(found - wanted)) == ([], [])


def test_the_documented_roles_for_clusters_of_upstreams_are_those_that_this_control_plane_gives() -> None:
    text = (Path(__file__).parents[4] / "docs/install.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    documented = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(block)}
    ours = {(o["kind"], o["metadata"]["name"]): o for o in (*default_policy(), *joining_policy())}
    for name in (daemon_roles.SERVERS, daemon_roles.NETWORK_POLICY):
        given = ours.get(("ClusterRole", name)) or ours[("Role", name)]
        assert grants(documented[("ClusterRole", name)]) == grants(given)
        binding = ours.get(("ClusterRoleBinding", name)) or ours[("RoleBinding", name)]
        shown = documented.get(("ClusterRoleBinding", name)) or documented[("RoleBinding", name)]
        assert (shown["kind"], shown["metadata"].get("namespace")) == (
            binding["kind"],
            binding["metadata"].get("namespace"),
        )
        assert {(s["kind"], s["name"]) for s in shown["subjects"]} == {
            (s["kind"], s["name"]) for s in binding["subjects"]
        }


def grants(role: Object) -> set[tuple[str, str, str, str]]:
    return {
        (group, resource, name, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [""]
        for verb in rule["verbs"]
    }
