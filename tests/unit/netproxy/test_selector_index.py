"""The members of selections are those that the selectors match, however the selectors are found, and whatever changed."""

import random
from typing import Any

import pytest

from kube.selectors import LabelSelector, Requirement
from netproxy.errors import PolicyError
from netproxy.policy import table as table_module
from netproxy.policy.limits import MAX_ALIKE
from netproxy.policy.model import INGRESS, Policy, Rule
from netproxy.policy.parsing import closed, parse
from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.selector import Selector
from netproxy.policy.selector_index import FEW, hints_of
from netproxy.policy.table import PolicyTable
from netproxy.slices import run_to_end
from tests.support.policies import policy

OPERATORS = ["in", "in", "notin", "exists", "!", "gt"]


def labels(chance: random.Random) -> dict[str, str]:
    return {key: str(chance.randrange(4)) for key in "abc" if chance.random() < 0.6}


def selector_of(chance: random.Random) -> LabelSelector:
    requirements = []
    for _ in range(chance.randrange(3)):
        operator = chance.choice(OPERATORS)
        count = {"exists": 0, "!": 0, "gt": 1}.get(operator, chance.choice([1, 2, 3, FEW + 4]))
        values = {str(chance.randrange(4)), *(str(10 + number) for number in range(count - 1))} if count else ()
        requirements.append(Requirement(chance.choice("abc"), operator, frozenset(values)))
    return LabelSelector(tuple(requirements))


def a_selector(chance: random.Random, namespace: str) -> Selector:
    if chance.random() < 0.3:
        return Selector(selector_of(chance), namespace)
    return Selector(selector_of(chance), namespaces=selector_of(chance))


@pytest.mark.parametrize("seed", range(30))
def test_after_any_changes_members_are_what_each_selector_matches(seed: int) -> None:
    chance, table = random.Random(seed), PolicyTable()
    known: dict[str, dict[str, str]] = {}
    names = ["n1", "n2", "n3"]
    for _ in range(150):
        match chance.randrange(4):
            case 0:
                name = chance.choice(names)
                if chance.random() < 0.8:
                    known[name] = labels(chance)
                else:
                    known.pop(name, None)
                table.set_namespace(name, known.get(name))
            case 1:
                key = f"n1/p{chance.randrange(4)}"
                peers = tuple(a_selector(chance, "n1") for _ in range(chance.randrange(5)))
                table.set_policy(Policy(key, Selector(namespace="n1"), {INGRESS: (Rule(False, peers),)}))
            case 2 if table.policies:
                table.delete_policy(chance.choice(list(table.policies)))
            case _:
                name = chance.choice(names)
                facts = PodFacts(name, labels(chance), (), chance.random() < 0.5, "")
                table.set_pod(f"{name}/p{chance.randrange(6)}", facts if chance.random() < 0.8 else None)
        for each in table.policies.values():
            for selector in each.selectors():
                wanted = {k: p for k, p in table.known.pods.items() if selector.matches(p, known.get(p.namespace))}
                assert table.members(selector) == wanted
                assert table.members_here(selector) == {k: p for k, p in wanted.items() if p.here}
        assert members_of(table, "n1") == sum(
            sum(bool(pod.ips) for pod in table.members(selector).values()) * weight
            for each in table.policies.values()
            for selector, weight in each.weights.items()
        )
    for key in list(table.policies):
        table.delete_policy(key)
    assert nothing_is_placed(table)
    counts = table.selections.counts
    assert not (counts._policies or counts._weights or counts._counted or counts._changed or counts._totals)


def members_of(table: PolicyTable, namespace: str) -> int:
    run_to_end(table.selections.counts.settle())
    return table.selections.counts.total(namespace)


def nothing_is_placed(table: PolicyTable) -> bool:
    placements = table.selections.subject_places, table.selections.peer_places
    left = any(each._placed or each._counts for each in placements)
    return not (left or table.selections.index._places or table.selections.index._times)


def test_a_selector_is_indexed_by_few_values_or_by_a_required_key() -> None:
    several = Requirement("app", "in", frozenset({"a", "b"}))
    one = Requirement("tier", "in", frozenset({"x"}))
    many = Requirement("app", "in", frozenset(map(str, range(FEW + 1))))
    other = Requirement("x", "notin", frozenset("y"))
    first, second = hints_of(LabelSelector((other, several, one)))
    assert (first, set(second)) == ((("tier", "x"),), {("app", "a"), ("app", "b")})
    assert hints_of(LabelSelector((many, one))) == [(("tier", "x"),), (("app", None),)]
    assert hints_of(LabelSelector((other, many))) == [(("app", None),)]
    assert hints_of(LabelSelector((Requirement("app", "exists"),))) == [(("app", None),)]
    assert hints_of(LabelSelector((other, Requirement("z", "!")))) == [(None,)]


def of_release(number: int) -> dict[str, str]:
    """Return labels as a Helm chart gives them to one of its Services' pods; the last has a value of its own."""
    return {
        "app.kubernetes.io/instance": "shop",
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/name": f"service-{number}",
    }


@pytest.mark.parametrize("word", ["podSelector", "namespaceSelector"])
def test_policies_of_all_services_of_a_release_are_in_force(word: str) -> None:
    table, count = PolicyTable(), 4 * MAX_ALIKE
    for number in range(count):
        peer = {"podSelector": {"matchLabels": {"tier": "web"}}, word: {"matchLabels": of_release(number)}}
        spec = {"podSelector": {"matchLabels": of_release(number)}, "ingress": [{"from": [peer]}]}
        table.set_policy(parse(policy(f"p{number}", "shop", **spec)))
    assert len(table.policies) == count
    pod_labels, namespace_labels = {"tier": "web", **of_release(1)}, of_release(1)
    places = table.selections.index.places("shop", namespace_labels)
    assert len(list(table.selections.index.about_pod(places, pod_labels))) <= 2 * MAX_ALIKE
    for number in range(count):
        table.delete_policy(f"shop/p{number}")
    assert nothing_is_placed(table)


def test_a_selector_of_two_namespaces_is_found_as_long_as_one_uses_it() -> None:
    table = PolicyTable()
    table.set_namespace("a", {"team": "x"})
    table.set_namespace("b", {})
    team = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
    both = [team | {"podSelector": {"matchLabels": {"app": "a", "x": "y"}}}]
    first = [team | {"podSelector": {}}, *both]
    other = team | {"podSelector": {"matchLabels": {"app": "a"}}}
    table.set_policy(parse(policy("p", "a", ingress=[{"from": both}])))
    table.set_policy(parse(policy("p", "b", ingress=[{"from": [other, *first]}])))
    table.set_policy(parse(policy("p", "b", ingress=[{"from": [other]}])))
    table.set_policy(parse(policy("p", "b", ingress=[{"from": [other, *both]}])))
    for gone, kept in (("a/p", "b/p"), ("b/p", "")):
        table.delete_policy(gone)
        table.set_pod(f"a/{gone[0]}", PodFacts("a", {"app": "a", "x": "y"}, (), True, ""))
        for each in table.policies[kept].peers if kept else ():
            assert f"a/{gone[0]}" in table.members(each)
    assert nothing_is_placed(table)


def without(*numbers: int) -> list[dict[str, Any]]:
    """Return peers that no label leads to."""
    expressions = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in numbers]
    return [{"namespaceSelector": {}, "podSelector": {"matchExpressions": [each]}} for each in expressions]


def test_a_namespace_has_only_so_many_peers_that_no_label_leads_to_and_others_have_their_own() -> None:
    table = PolicyTable()
    table.set_policy(parse(policy("half", "evil", ingress=[{"from": without(*range(MAX_ALIKE - 1))}])))
    table.set_policy(parse(policy("one", "evil", ingress=[{"from": without(MAX_ALIKE)}])))
    with pytest.raises(PolicyError, match="different peers"):
        table.set_policy(parse(policy("more", "evil", ingress=[{"from": without(MAX_ALIKE + 1)}])))
    assert "evil/more" not in table.policies
    table.set_policy(parse(policy("same", "evil", ingress=[{"from": without(1, 2, 3)}])))
    table.set_policy(parse(policy("more", "good", ingress=[{"from": without(*range(MAX_ALIKE))}])))
    table.delete_policy("evil/half")
    table.set_policy(parse(policy("more", "evil", ingress=[{"from": without(MAX_ALIKE + 1)}])))
    assert {"evil/more", "good/more"} < table.policies.keys()


def test_one_label_leads_to_only_so_many_peers_of_a_namespace() -> None:
    def peers(count: int) -> list[dict[str, Any]]:
        both = [
            [{"key": "tier", "operator": "In", "values": ["x"]}, each["podSelector"]] for each in without(*range(count))
        ]
        return [
            {"namespaceSelector": {}, "podSelector": {"matchExpressions": [first, *rest["matchExpressions"]]}}
            for first, rest in both
        ]

    table = PolicyTable()
    table.set_policy(parse(policy("some", "evil", ingress=[{"from": peers(MAX_ALIKE)}])))
    with pytest.raises(PolicyError, match="different peers"):
        table.set_policy(parse(policy("some", "evil", ingress=[{"from": peers(MAX_ALIKE + 1)}])))
    assert len(table.policies["evil/some"].peers) == MAX_ALIKE


def test_a_policy_that_is_closed_while_its_next_version_is_taken_in_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_module, "SLICE", 1)
    table = PolicyTable()
    table.set_namespace("evil", {})
    for number in range(5):
        table.set_pod(f"evil/{number}", PodFacts("evil", {}, (), True, ""))
    table.set_policy(parse(policy("p", "evil", ingress=[{"from": without(1, 2)}])))
    work = table.set_policy_in_slices(parse(policy("p", "evil", ingress=[{"from": without(2, 3)}])))
    next(work), next(work)
    table.set_policy(closed(policy("p", "evil")))
    labelled = table.set_namespace_in_slices("evil", {"a": "b"})
    run_to_end(work)
    assert len(table.policies["evil/p"].peers) == 2
    assert all(len(table.members(each)) == 5 for each in table.policies["evil/p"].peers)
    assert table.costs.total("evil") == 2
    next(labelled)
    table.set_policy(closed(policy("p", "evil")))
    run_to_end(labelled)
    table.delete_policy("evil/p")
    assert nothing_is_placed(table) and not table.selections._changed and not table.selections._known
    assert not table.costs.total("evil")
