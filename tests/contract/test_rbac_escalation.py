"""Nobody gives themselves, or anybody else, more than they have: through roles, bindings, labels or aggregation.

Roles, aggregation rules, labels and requests by a limited user are drawn by seed: WHERRY_FUZZ_EXAMPLES=1000 draws more of them.
The real server answers the requests, the real controller aggregates, and what each user may do is worked out here from the
stored objects, apart from the server's own authorizer, before and after.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio

from control.controllers.context import Context
from control.controllers.role_aggregation import RoleAggregationController
from kube.json_object import Object
from kube.shared_informers import SharedInformers
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

Cell = tuple[str, ...]
"""(namespace, verb, resource, name), or (verb, path)."""
GROUP = "rbac.authorization.k8s.io"
API = f"/apis/{GROUP}/v1"
USERS, NAMESPACES = ("jane", "bob"), ("", "shop", "other")
VERBS, RESOURCES, NAMES, PATHS = (
    ("get", "delete"),
    ("pods", "secrets", "pods/log"),
    ("", "x", "y"),
    ("/metrics", "/logs/a"),
)
MINE = "clusterroles", "roles", "clusterrolebindings", "rolebindings"
RIGHTS = {"verbs": ["get", "create", "update", "patch", "delete"], "apiGroups": [GROUP], "resources": list(MINE)}
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
EXAMPLES = int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "50"))
ROLE_NAMES = ("one", "two", "three", "sum", "total")


# -- what a user may do -----------------------------------------------------------------------------------------------
def cells(rules: Iterable[Object], namespace: str) -> set[Cell]:
    """Return what rules allow in a namespace; those of "" hold in all of them."""
    found: set[Cell] = set()
    for rule in rules:
        verbs = VERBS if "*" in rule["verbs"] else [v for v in rule["verbs"] if v in VERBS]
        for verb, path, given_path in itertools.product(
            verbs, PATHS, () if namespace else rule.get("nonResourceURLs") or ()
        ):
            if given_path in ("*", path) or (given_path.endswith("*") and path.startswith(given_path[:-1])):
                found.add((verb, path))
        if not {"", "*"} & set(rule.get("apiGroups") or ()):
            continue
        resources = rule.get("resources") or ()
        names = rule.get("resourceNames") or NAMES
        everywhere = NAMESPACES if not namespace else (namespace,)
        for where, verb, resource, name in itertools.product(everywhere, verbs, RESOURCES, names):
            sub = resource.partition("/")[2]
            if "*" in resources or resource in resources or (sub and f"*/{sub}" in resources):
                found.add((where, verb, resource, name))
    return found


def rights(state: dict[str, list[Object]], user: str) -> set[Cell]:
    """Return what a user may do, from all roles and bindings."""
    roles = {("", o["metadata"]["name"]): o for o in state["clusterroles"]}
    roles |= {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in state["roles"]}
    found: set[Cell] = set()
    for binding in state["clusterrolebindings"] + state["rolebindings"]:
        if any(s["kind"] == "User" and s["name"] == user for s in binding.get("subjects") or ()):
            where = binding["metadata"].get("namespace", "")
            ref = binding["roleRef"]
            role = roles.get(("" if ref["kind"] == "ClusterRole" else where, ref["name"]))
            found |= cells((role or {}).get("rules") or (), where)
    return found


def may_escalate(state: dict[str, list[Object]]) -> bool:
    """Return whether jane's rules give her the verbs `escalate` and `bind` everywhere, which are there to get around."""
    roles = {o["metadata"]["name"]: o for o in state["clusterroles"]}
    mine = [
        b["roleRef"]["name"]
        for b in state["clusterrolebindings"]
        if "jane" in (s["name"] for s in b.get("subjects") or ())
    ]
    return any(
        all("*" in rule.get(part, ()) for part in ("verbs", "apiGroups", "resources"))
        for name in mine
        for rule in roles[name].get("rules") or ()
        if not rule.get("resourceNames")
    )


def selected(role: Object, others: list[Object]) -> list[Object]:
    """Return the rules that an aggregating role is to have."""
    rules: list[Object] = []
    for selector in role["aggregationRule"]["clusterRoleSelectors"]:
        for other in others:
            labels = other["metadata"].get("labels") or {}
            equal = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
            there = all(e["key"] in labels for e in selector.get("matchExpressions") or ())
            if equal and there and other["metadata"]["name"] != role["metadata"]["name"]:
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules


# -- the server -------------------------------------------------------------------------------------------------------
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        for namespace in NAMESPACES[1:]:
            await api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        client = api.client()
        informers = SharedInformers(client)
        aggregation = RoleAggregationController(Context(client=client, informers=informers))
        async with running(informers.run(), aggregation.run()):
            await informers.wait_synced()
            yield api


def path(plural: str, namespace: str = "", name: str = "") -> str:
    where = f"/namespaces/{namespace}" if plural in ("roles", "rolebindings") else ""
    return f"{API}{where}/{plural}" + (f"/{name}" if name else "")


async def settled(server: ApiUnderTest) -> dict[str, list[Object]]:
    """Return all roles and bindings once the aggregating roles have what they select."""

    async def look() -> dict[str, list[Object]]:
        listed = await asyncio.gather(*(server.request("GET", f"{API}/{plural}") for plural in MINE))
        state = {plural: answer.json["items"] for plural, answer in zip(MINE, listed, strict=True)}
        every = sorted(state["clusterroles"], key=lambda o: o["metadata"]["name"])
        aggregating = [role for role in every if role.get("aggregationRule")]
        return state if all((r.get("rules") or []) == selected(r, every) for r in aggregating) else {}

    found: dict[str, list[Object]] = await eventually(look)
    return found


def metadata(name: str, namespace: str = "", labels: Object | None = None) -> Object:
    return {"name": name, "labels": labels or {}} | ({"namespace": namespace} if namespace else {})


def bind(name: str, role: str, *users: str, namespace: str = "", kind: str = "ClusterRole") -> Object:
    subjects = [{"apiGroup": GROUP, "kind": "User", "name": user} for user in users]
    ref = {"apiGroup": GROUP, "kind": kind, "name": role}
    return {"metadata": metadata(name, namespace), "roleRef": ref, "subjects": subjects}


async def begin(server: ApiUnderTest, world: Object) -> None:
    """Remove what an example before has left, and create this one's roles and bindings."""
    for plural in MINE:
        for obj in (await server.request("GET", f"{API}/{plural}")).json["items"]:
            meta = obj["metadata"]
            if "kubernetes.io/bootstrapping" not in (meta.get("labels") or {}) and ":" not in meta["name"]:
                await server.request("DELETE", path(plural, meta.get("namespace", ""), meta["name"]))
    made = [("clusterroles", role) for role in world["roles"]]
    made.append(("clusterroles", {"metadata": metadata("janes"), "rules": [RIGHTS, *world["held"]]}))
    made.append(("clusterroles", {"metadata": metadata("everything"), "rules": [EVERYTHING]}))
    made.append(("clusterrolebindings", bind("janes", "janes", "jane")))
    made.append(("rolebindings", bind("bobs", "three", "bob", namespace="shop")))
    made.append(("roles", {"metadata": metadata("new", "shop"), "rules": []}))
    for number, (role, namespace) in enumerate(world["bound"]):
        plural = "rolebindings" if namespace else "clusterrolebindings"
        made.append((plural, bind(f"bound-{number}", role, "jane", namespace=namespace)))
    for plural, obj in made:
        answer = await server.request("POST", path(plural, obj["metadata"].get("namespace", "")), obj)
        assert answer.status == 201, answer.body


async def play(
    server: ApiUnderTest, world: Object, requests: list[tuple[str, str, Object]], what: str = ""
) -> list[int]:
    await begin(server, world)
    before = await settled(server)
    allowed = {user: rights(before, user) | rights(before, "jane") for user in USERS}
    statuses: list[int] = []
    if may_escalate(before):
        return statuses
    for verb, plural, obj in requests:
        meta = obj["metadata"]
        where = meta.get("namespace", "")
        one, body, headers = path(plural, where, meta["name"]), obj, {}
        kind = {"clusterroles": "ClusterRole", "roles": "Role"}.get(
            plural, "ClusterRoleBinding" if not where else "RoleBinding"
        )
        if verb == "POST":
            answer = await server.request("POST", path(plural, where), body, user=("jane", ()))
        elif verb in ("PUT", "DELETE"):
            answer = await server.request(verb, one, body if verb == "PUT" else None, user=("jane", ()))
        else:
            headers = {"Content-Type": PATCHES[verb]}
            query = "?fieldManager=jane&force=true" if verb == "apply" else ""
            body = json.dumps(obj | {"apiVersion": f"{GROUP}/v1", "kind": kind}).encode()
            answer = await server.request("PATCH", one + query, body, headers=headers, user=("jane", ()))
        statuses.append(answer.status)
        assert answer.status < 500, answer.body
        after = await settled(server)
        for user in USERS:
            more = rights(after, user) - allowed[user]
            assert not more, (what, world, requests[: len(statuses)], statuses, user, sorted(more))
    return statuses


# -- what is made up --------------------------------------------------------------------------------------------------
EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


class Draw:
    """A world and the requests made in it, by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        names, chance = ROLE_NAMES, self._random.random
        roles: list[Object] = [
            {"metadata": metadata(n, labels=self.labels()), "rules": self.rules()} for n in names[:3]
        ]
        roles[2]["rules"] = [EVERYTHING]
        roles += [
            {"metadata": metadata(n, labels=self.labels()), "aggregationRule": self.aggregation()} for n in names[3:]
        ]
        bound = [(self.of("one", "sum", "sum", "total"), self.of(*NAMESPACES)) for _ in range(self.of(1, 2))]
        self.world = {"roles": roles, "held": self.rules() if chance() < 0.7 else [], "bound": bound}
        self.requests = [self.request() for _ in range(6)]

    def of(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def some(self, most: int, *choices: str) -> list[str]:
        return self._random.sample(choices, self.of(*range(1, most + 1)))

    def rule(self, namespaced: bool) -> Object:
        if not namespaced and self._random.random() < 0.2:
            return {"verbs": ["get"], "nonResourceURLs": [self.of("/metrics", "/logs/*", "*")]}
        names = {"resourceNames": self.some(2, "x", "y")} if self._random.random() < 0.3 else {}
        verbs, resources = self.some(2, "get", "delete", "*"), self.some(2, "pods", "secrets", "pods/log", "*/log", "*")
        return {"verbs": verbs, "apiGroups": [self.of("", "", "*", "apps")], "resources": resources} | names

    def rules(self, namespaced: bool = False) -> list[Object]:
        return [self.rule(namespaced) for _ in range(self.of(0, 1, 1, 2))]

    def labels(self) -> Object:
        return {key: self.of("a", "b", "") for key in self.some(2, "to", "also")} if self._random.random() < 0.6 else {}

    def aggregation(self) -> Object:
        selectors = []
        for _ in range(self.of(1, 1, 2)):
            key = self.of("to", "also")
            exists = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
            selectors.append(self.of({"matchLabels": {key: self.of("a", "b")}}, exists))
        return {"clusterRoleSelectors": selectors}

    def request(self) -> tuple[str, str, Object]:
        verb = self.of("POST", "PUT", "merge", "merge", "merge", "strategic", "apply", "apply", "DELETE")
        plural = self.of("clusterroles", "clusterroles", "clusterroles", "clusterroles", *MINE)
        where = self.of(*NAMESPACES[1:]) if plural in ("roles", "rolebindings") else ""
        if plural.endswith("bindings"):
            kind = self.of("ClusterRole", "ClusterRole", "Role") if where else "ClusterRole"
            role = "new" if kind == "Role" else self.of(*ROLE_NAMES, "everything")
            if verb in PATCHES:  # the role cannot be exchanged
                verb, role = ("merge", "three" if where else "janes") if self.of(True, False) else ("apply", role)
            name = self.of("bobs" if where else "janes", "new") if verb != "POST" else "new"
            users = self.some(2, *USERS) if self.of(True, True, False) else []
            return verb, plural, bind(name, role, *users, namespace=where, kind=kind)
        name = "new" if verb == "POST" or where else self.of(*ROLE_NAMES, "everything", "everything")
        obj: Object = {"metadata": metadata(name, where, self.labels())}
        if verb in PATCHES and self._random.random() < 0.6:
            return verb, plural, obj
        if self.of(True, False):
            obj["rules"] = self.rules(bool(where))
        if not where and self._random.random() < 0.2:
            obj["aggregationRule"] = self.of(None, self.aggregation())
        return verb, plural, obj


async def test_no_request_gives_anybody_more_than_its_user_has(server: ApiUnderTest) -> None:
    statuses = []
    for seed in range(EXAMPLES):
        drawn = Draw(seed)
        statuses += await play(server, drawn.world, drawn.requests, f"seed {seed}")
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    # Enough was done, and enough refused, for the property to mean something.
    assert min(counts[200], counts[201], counts[403]) > EXAMPLES // 8, counts


async def test_a_label_does_not_carry_a_role_into_one_that_its_user_has(server: ApiUnderTest) -> None:
    world = {
        "roles": [
            {"metadata": metadata("power"), "rules": [EVERYTHING]},
            {"metadata": metadata("three"), "rules": []},
            {
                "metadata": metadata("sum"),
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]},
            },
        ],
        "held": [],
        "bound": [("sum", "")],
    }
    labelled = {"metadata": metadata("power", labels={"to": "sum"})}
    assert await play(server, world, [("merge", "clusterroles", labelled)]) == [403]
