"""Immutable sets of elements, and elements of selections after changes: they equal those of all members."""

from __future__ import annotations

import random

import pytest

from netproxy.policy import element_set as element_set_module
from netproxy.policy.element_set import LEAF, ElementSet, different_parts
from netproxy.policy.member_elements import ADDRESSES, ElementKind
from netproxy.policy.pod_facts import NamedPort, PodFacts
from netproxy.policy.selections import Selection
from netproxy.slices import run_to_end


def differing(old: ElementSet, new: ElementSet) -> tuple[set[str], set[str]]:
    """Return the elements that go and come, of the parts that differ."""
    pairs = list(different_parts(old, new))
    return {e for a, b in pairs for e in a if e not in b}, {e for a, b in pairs for e in b if e not in a}


@pytest.mark.parametrize("seed", range(10))
def test_any_changes_leave_a_set_with_the_same_elements_and_older_versions_alone(seed: int) -> None:
    chance = random.Random(seed)
    start = {f"10.0.0.{number}": "" for number in range(chance.choice([0, 5, LEAF, 500]))}
    elements, made = dict(start), ElementSet(start)
    versions = [(dict(elements), made)]
    for _ in range(30):
        for _ in range(chance.choice([1, 1, 200])):
            element = f"10.0.{chance.randrange(3)}.{chance.randrange(250)}"
            if chance.random() < 0.5:
                elements[element], made = "", made.added(element)
            else:
                elements.pop(element, None)
                made = made.removed(element)
        versions.append((dict(elements), made))
    for held, version in versions:
        assert (len(version), dict(version.items()), set(version)) == (len(held), held, set(held))
        assert version == held and all(element in version for element in held) and "10.9.9.9" not in version
        other_held, other = chance.choice(versions)
        assert differing(version, other) == (held.keys() - other_held.keys(), other_held.keys() - held.keys())


def test_no_change_is_the_same_set() -> None:
    made = ElementSet({"a": ""})
    assert made.added("a") is made and made.removed("b") is made
    assert not list(different_parts(made, made))


def test_a_set_that_has_shrunk_has_no_empty_parts() -> None:
    made = ElementSet({str(number): "" for number in range(5000)})
    for number in range(4999):
        made = made.removed(str(number))
    assert list(made) == ["4999"]
    assert len(list(element_set_module._leaves(made._root))) <= 2 * element_set_module.SHRUNKEN


def test_elements_with_the_same_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(element_set_module, "hash", lambda element: 7, raising=False)
    made = ElementSet()
    for number in range(3 * LEAF):
        made = made.added(str(number))
    assert len(made) == 3 * LEAF and set(made) == {str(number) for number in range(3 * LEAF)}
    assert set(made.removed("5")) == set(made) - {"5"}


def test_versions_share_all_parts_without_a_change() -> None:
    made = ElementSet({str(number): "" for number in range(10_000)})
    ((before, after),) = different_parts(made, made.added("more"))
    assert len(before) < 4 * LEAF and after == {**before, "more": ""}


HTTP: ElementKind = ("http", "TCP")


def wanted(selection: Selection, family: int) -> dict[ElementKind, set[str]]:
    """Return the elements of all members."""
    found: dict[ElementKind, set[str]] = {ADDRESSES: set(), HTTP: set()}
    for member in selection.members.values():
        found[ADDRESSES].update(member.addresses(family))
        for port in member.ports:
            if (port.name, port.protocol) == HTTP:
                found[HTTP].update(f"{ip} . {port.number}" for ip in member.addresses(family))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_elements_of_a_selection_follow_its_members(seed: int) -> None:
    """Several pods have an address, some have it twice, and few or nearly all members change between two rulesets."""
    chance, selection = random.Random(seed), Selection()
    for _ in range(60):
        for _ in range(chance.choice([1, 1, 3, 300])):
            key = str(chance.randrange(80))
            if key in selection.members and chance.random() < 0.4:
                selection.drop(key)
                continue
            ips = tuple(chance.choice(["10.0.0.{}", "fd00::{}"]).format(chance.randrange(40)) for _ in range(2))
            ports = [NamedPort("http", "TCP", number) for number in chance.sample([80, 81, 82], chance.randrange(3))]
            ports += [NamedPort("http", "UDP", 80), NamedPort("other", "TCP", 90)][: chance.randrange(3)]
            facts = PodFacts("default", {}, ips, False, "2026", tuple(ports))
            selection.put(key, facts)
        if chance.random() < 0.05:
            selection.clear()
        for family in (4, 6):
            kinds = chance.sample([ADDRESSES, HTTP], chance.randrange(3))
            found = selection.elements(family, kinds) if kinds else {}
            expected = wanted(selection, family)
            assert {kind: set(found[kind]) for kind in kinds} == {kind: expected[kind] for kind in kinds}
            if chance.random() < 0.1:
                selection.forget_elements(family, chance.choice([ADDRESSES, HTTP]))


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("changes", [0, 1, 100, 3000])
def test_members_change_while_their_elements_are_made_in_slices(changes: int, ended: bool) -> None:
    selection, chance = Selection(), random.Random(changes)

    def change() -> None:
        key = str(chance.randrange(6000))
        if key in selection.members and chance.random() < 0.5:
            selection.drop(key)
        else:
            ip, ports = f"10.0.{chance.randrange(20)}.{chance.randrange(250)}", (NamedPort("http", "TCP", 80),)
            selection.put(key, PodFacts("default", {}, (ip,), False, "2026", ports))

    for _ in range(8000):
        change()
    for kinds in ([ADDRESSES], [HTTP], [ADDRESSES, HTTP]):
        making = selection.make_elements(4, kinds)
        for number, _ in enumerate(making):
            for _ in range(changes):
                change()
            if ended and number == 2:  # as when the task is cancelled
                making.close()
        found = selection.elements(4, kinds)
        assert {kind: set(found[kind]) for kind in kinds} == {kind: wanted(selection, 4)[kind] for kind in kinds}
        for _ in range(changes // 4):
            change()


@pytest.mark.parametrize("later", [1, 1500])
def test_a_member_that_comes_while_changes_are_applied_is_counted_once(later: int) -> None:
    selection = Selection()

    def come(first: int, count: int) -> None:
        for number in range(first, first + count):
            ip = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            selection.put(str(number), PodFacts("default", {}, (ip,), False, "2026", (NamedPort("http", "TCP", 80),)))

    come(0, 20_000)
    selection.elements(4, [HTTP])
    come(20_000, 1_100)  # more than a slice
    making = selection.make_elements(4, [HTTP, ADDRESSES])
    next(making)
    come(30_000, later)
    run_to_end(making)
    for number in range(30_000, 30_000 + later):
        selection.drop(str(number))
    found = selection.elements(4, [HTTP, ADDRESSES])
    assert {kind: set(found[kind]) for kind in (HTTP, ADDRESSES)} == wanted(selection, 4)


def test_elements_of_members_that_change_otherwise_are_the_same_object() -> None:
    selection = Selection()
    selection.put("a", PodFacts("default", {}, ("10.0.0.1",), False, "2026"))
    made = selection.elements(4, [ADDRESSES])[ADDRESSES]
    selection.put("a", PodFacts("default", {"x": "y"}, ("10.0.0.1",), False, "2026", (NamedPort("http", "TCP", 80),)))
    assert selection.elements(4, [ADDRESSES])[ADDRESSES] is made
