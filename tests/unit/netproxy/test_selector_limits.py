"""Limits on the selectors of network policies: requirements are counted before they are parsed, and parsed once."""

from typing import Any

import pytest

from kube import selectors
from kube.api import networking_v1
from netproxy.policy import selections as selections_module
from netproxy.policy.limits import MAX_ALL_REQUIREMENTS, MAX_REQUIREMENTS, MAX_SUBJECTS_ALIKE
from netproxy.policy.parsing import parse, read
from netproxy.policy.pod_facts import facts_of
from netproxy.policy.policy_rules import PolicyRules
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.table import PolicyTable
from netproxy.slices import run_to_end
from tests.support.clock import settle
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import PolicyTracer, pod, policy
from tests.unit.netproxy.test_enforcer import CLIENT, WEB, cluster, enforcing
from tests.unit.netproxy.test_policy_budgets import Site


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts of the requirements that are read."""
    counts = list[int]()
    read_one = selectors.from_label_selector

    def counting(selector: Any) -> selectors.LabelSelector:
        found = read_one(selector)
        counts.append(len(found.requirements))
        return found

    monkeypatch.setattr(selectors, "from_label_selector", counting)
    return counts


def requesting(count: int, *, mark: str = "") -> dict[str, Any]:
    absent = [{"key": f"k{mark}{number}", "operator": "DoesNotExist"} for number in range(count)]
    return {"matchExpressions": absent}


def one_of(count: int) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "app", "operator": "In", "values": [f"v{n}" for n in range(count)]}]}


@pytest.mark.parametrize("selector", [requesting(MAX_REQUIREMENTS + 1), requesting(37_000), one_of(MAX_REQUIREMENTS)])
@pytest.mark.parametrize("where", ["subject", "podSelector", "namespaceSelector"])
def test_a_selector_over_the_limits_is_not_parsed(selector: dict[str, Any], where: str, made: list[int]) -> None:
    if where == "subject":
        found, why = run_to_end(read(policy("large", podSelector=selector)))
        assert found.subject.whole_namespace
    else:
        found, why = run_to_end(read(policy("large", podSelector=one_of(3), ingress=[{"from": [{where: selector}]}])))
        assert not found.subject.whole_namespace
    assert f"labels, expressions and values; {MAX_REQUIREMENTS} are enforced at most" in why
    assert not any(found.rules.values())
    assert sum(made) <= 1


def test_the_selectors_of_one_policy_share_one_limit(made: list[int]) -> None:
    def spread(count: int) -> networking_v1.NetworkPolicy:
        peers = [{"podSelector": requesting(100, mark=str(number))} for number in range(count)]
        return policy("large", podSelector={}, ingress=[{"from": peers}])

    found, why = run_to_end(read(spread(MAX_ALL_REQUIREMENTS // 100)))
    assert not why and sum(made) == MAX_ALL_REQUIREMENTS and found.peers
    made.clear()
    found, why = run_to_end(read(spread(MAX_ALL_REQUIREMENTS // 100 + 1)))
    assert f"{MAX_ALL_REQUIREMENTS + 100} labels, expressions and values of selectors" in why
    assert sum(made) == 0 and not found.peers


def selected(number: int) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": f"a{number}"}}}


def block(number: int) -> str:
    return f"10.{number >> 8}.{number & 255}.0/25"


LARGE: dict[str, list[dict[str, Any]]] = {
    "peers": [{"from": [selected(number) for number in range(1000)]}],
    "ranges": [{"from": [{"ipBlock": {"cidr": block(number)}} for number in range(1000)]}],
    "exceptions": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": [block(n) for n in range(1000)]}}]}],
    "ports": [{"ports": [{"port": number + 1} for number in range(1000)]}],
    "named ports": [{"ports": [{"port": f"p{number}"} for number in range(1000)]}],
    "rules": [{"ports": [{"port": number + 1}]} for number in range(1000)],
    "products": [{"from": [selected(number) for number in range(30)], "ports": [{"port": "p"}, {"port": "q"}]}] * 30,
}


@pytest.mark.parametrize("what", LARGE)
def test_a_large_policy_is_read_in_slices(what: str) -> None:
    size = sum(max(1, len(rule.get("from", ()))) + len(rule.get("ports", ())) for rule in LARGE[what])
    size = 1000 if what == "exceptions" else size
    assert sum(1 for _ in read(policy("large", ingress=LARGE[what]))) >= size // 100


@pytest.mark.parametrize(("what", "slices"), [("named ports", 10), ("rules", 10), ("products", 18)])
def test_the_rules_of_a_large_policy_are_made_in_slices(
    what: str, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = PolicyTable()
    table.set_namespace("default", {})
    table.set_pod("default/web", facts_of(pod("web", WEB, labels={"app": "web"}), "node-1"))
    table.set_policy(parse(policy("large", ingress=LARGE[what])))
    builder, direct = RulesetBuilder(table, 4), RulesetBuilder(table, 4).build()
    assert sum(1 for _ in builder.prepare()) >= slices
    monkeypatch.setattr(PolicyRules, "new_part", lambda *_: pytest.fail("it is made again"))
    made = builder.build()
    assert (made.declarations, made.elements, made.chains) == (direct.declarations, direct.elements, direct.chains)


def test_rules_that_were_made_for_a_policy_that_was_replaced_are_not_used() -> None:
    table = PolicyTable()
    table.set_namespace("default", {})
    table.set_pod("default/web", facts_of(pod("web", WEB, labels={"app": "web"}), "node-1"))
    table.set_policy(parse(policy("large", ingress=LARGE["rules"])))
    builder = RulesetBuilder(table, 4)
    for _ in builder.prepare():
        table.set_policy(parse(policy("large", ingress=LARGE["named ports"])))
    wanted = RulesetBuilder(table, 4).build()
    assert builder.build().chains == wanted.chains


def test_requirements_are_joined_when_the_policy_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = PolicyTable()
    table.set_namespace("default", {})
    for number in range(20):
        table.set_policy(parse(policy(f"p{number}", podSelector=requesting(500, mark=f"{number}-"))))
    joined = list[int]()
    monkeypatch.setattr(selectors, "Rules", lambda *given: joined.append(1))
    assert table.set_pod("default/web", facts_of(pod("web", WEB), "node-1"))
    assert all(table.members(each.subject) for each in table.policies.values())
    assert not joined


async def test_an_update_of_a_policys_metadata_is_not_taken_in(made: list[int]) -> None:
    deny = policy("deny", podSelector={"matchLabels": {"app": "web"}})
    api, writer = cluster(deny, pod("web", WEB, labels={"app": "web"})), RecordingWriter()
    async with enforcing(api, writer) as enforcer:
        await enforcer.started.wait()
        await settle(80)
        assert made and not PolicyTracer(writer.contents).allows(CLIENT, WEB, 80)
        made.clear()
        deny.metadata.annotations = {"a": "b"}
        api.put(deny)
        await settle(80)
        assert not made
        deny.spec.pod_selector.match_labels = {"app": "db"}
        api.put(deny)
        await settle(80)
        assert made and PolicyTracer(writer.contents).allows(CLIENT, WEB, 80)


def test_isolated_pods_are_found_by_few_selectors_of_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site("evil", "good")

    def put(namespace: str, name: str, selector: dict[str, Any]) -> None:
        site.objects[f"{namespace}/{name}"] = policy(name, namespace, podSelector=selector)
        run_to_end(site.loader.put(f"{namespace}/{name}", site.objects[f"{namespace}/{name}"]))

    for number in range(MAX_SUBJECTS_ALIKE + 3):
        put("evil", f"p{number}", requesting(2, mark=f"{number}-"))
    above = [f"evil/p{MAX_SUBJECTS_ALIKE + number}" for number in range(3)]
    assert list(site.closed_for) == above
    assert all("different selectors of the pods that they isolate" in why for why in site.closed_for.values())
    assert all(site.table.policies[key].subject.whole_namespace for key in above)
    put("good", "one", requesting(2))
    put("evil", "by-label", {"matchLabels": {"app": "web"}})
    put("evil", "p0", requesting(3))  # a change of one that has its place
    assert list(site.closed_for) == above
    compared = list[str]()
    match = selections_module.Selections.match

    def counting(self: Any, selector: Any, selection: Any, key: str, *rest: Any) -> bool:
        compared.append(key)
        return match(self, selector, selection, key, *rest)

    monkeypatch.setattr(selections_module.Selections, "match", counting)
    site.table.set_pod("evil/b", facts_of(pod("b", "10.244.1.9", namespace="evil"), "node-1"))
    assert len(compared) == MAX_SUBJECTS_ALIKE + 1
    for number in range(3):
        site.objects.pop(f"evil/p{number}")
        site.loader.delete(f"evil/p{number}")
