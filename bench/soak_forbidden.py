"""Kinds that the controllers' informers may not list, each in turn: their role is cut, and the control plane killed.

A watch that runs is not ended by a changed role, so the control plane starts anew and has to list.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from bench.soak_api import insist
from bench.soak_faults import kill
from tests.support.cluster import Cluster

ROLE = "system:kube-controller-manager"
ALL = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}
UPDATED = "rbac.authorization.kubernetes.io/autoupdate"
"""Annotation of roles that the API server repairs when it starts."""


class Forbidden:
    """The role, without one kind or whole."""

    def __init__(self, made: Cluster) -> None:
        self._made = made
        self._rules: list[dict[str, Any]] = []
        self._kinds: list[str] = []
        self._turn = itertools.count()

    def begin(self) -> None:
        """Take the next kind out of what informers may list."""
        if not self._kinds:
            self._read()
        without = self._kinds[next(self._turn) % len(self._kinds)]
        listed = [_rule(kind) for kind in self._kinds if kind != without]
        self._patch([*self._rules, *listed], "false")
        kill(self._made, "control")

    def end(self) -> None:
        """Let informers list everything."""
        self._patch([*self._rules, ALL], "true")

    def _read(self) -> None:
        names = insist(self._made, "api-resources", "--verbs=list,watch", "-o", "name").split()
        role = json.loads(insist(self._made, "get", "clusterrole", ROLE, "-o", "json"))
        self._rules = [rule for rule in role["rules"] if rule.get("resources") != ["*"]]
        assert len(self._rules) == len(role["rules"]) - 1, role
        self._kinds = sorted(names)

    def _patch(self, rules: list[dict[str, Any]], updated: str) -> None:
        body = {"metadata": {"annotations": {UPDATED: updated}}, "rules": rules}
        insist(self._made, "patch", "clusterrole", ROLE, "--type=merge", "-p", json.dumps(body))


def _rule(kind: str) -> dict[str, Any]:
    """Return the rule that lets list a kind, written as RESOURCE.GROUP."""
    plural, _, group = kind.partition(".")
    return {"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]}
