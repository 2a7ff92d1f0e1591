"""The ownership graph: objects that a creation, change or deletion makes the collector check."""

from __future__ import annotations

import pytest

from control.controllers.discovery import DiscoveredResource
from control.controllers.garbage.graph import FOREGROUND, ORPHAN, Graph, Item
from control.controllers.garbage.metadata import Owner

SETS = DiscoveredResource("apps", "v1", "replicasets", "ReplicaSet", True, frozenset())
PODS = DiscoveredResource("", "v1", "pods", "Pod", True, frozenset())
NODES = DiscoveredResource("", "v1", "nodes", "Node", False, frozenset())


def owner(uid: str, *, block: bool = True, name: str = "", kind: str = "ReplicaSet", group: str = "apps/v1") -> Owner:
    return Owner(group, kind, name or uid, uid, block, True)


def item(
    uid: str,
    *owners: Owner,
    resource: DiscoveredResource = PODS,
    deleting: bool = False,
    finalizers=(),
    namespace="default",
):
    return Item(resource, namespace, uid, uid, "1", tuple(owners), tuple(finalizers), deleting)


def test_a_new_object_with_owners_is_looked_at_and_one_without_is_not() -> None:
    graph = Graph()
    assert graph.put(item("rs", resource=SETS)) == set()
    assert graph.put(item("pod", owner("rs"))) == {"pod"}
    assert [found.uid for found in graph.dependents("rs")] == ["pod"]


def test_an_update_that_changes_no_owner_is_not_looked_at() -> None:
    graph = Graph()
    graph.put(item("pod", owner("rs")))
    assert graph.put(item("pod", owner("rs"))) == set()


def test_when_an_owner_goes_its_dependents_are_looked_at_and_when_a_dependent_goes_its_owners() -> None:
    graph = Graph()
    graph.put(item("rs", resource=SETS))
    graph.put(item("a", owner("rs")))
    graph.put(item("b", owner("rs")))
    assert graph.remove("a") == {"rs"}
    assert graph.remove("rs") == {"b"}
    assert graph.remove("unknown") == set()


def test_a_foreground_deletion_wakes_the_owner_and_its_dependents_once() -> None:
    graph = Graph()
    graph.put(item("rs", resource=SETS))
    graph.put(item("pod", owner("rs")))
    dying = item("rs", resource=SETS, deleting=True, finalizers=[FOREGROUND])
    assert graph.put(dying) == {"rs", "pod"}
    assert graph.put(dying) == set()


def test_an_orphaning_deletion_wakes_the_owner() -> None:
    graph = Graph()
    graph.put(item("rs", resource=SETS))
    assert graph.put(item("rs", resource=SETS, deleting=True, finalizers=[ORPHAN])) == {"rs"}


@pytest.mark.parametrize("after", [(), (owner("rs", block=False),)])
def test_an_owner_that_waits_hears_when_a_dependent_no_longer_blocks_it(after) -> None:
    graph = Graph()
    graph.put(item("rs", resource=SETS, deleting=True, finalizers=[FOREGROUND]))
    graph.put(item("pod", owner("rs")))
    assert "rs" in graph.put(item("pod", *after))


def test_objects_of_another_namespace_are_no_dependents_and_keep_no_owner() -> None:
    graph = Graph()
    graph.put(item("rs", resource=SETS, deleting=True, finalizers=[FOREGROUND]))
    graph.put(item("theirs", owner("rs"), namespace="evil"))
    assert graph.dependents("rs") == [] and graph.blocking("rs") == []
    graph.put(item("pod", owner("rs")))
    assert [found.uid for found in graph.blocking("rs")] == ["pod"] == [found.uid for found in graph.dependents("rs")]
    graph.put(Item(NODES, "", "n1", "n1", "1", (), (), True))
    graph.put(item("everywhere", Owner("v1", "Node", "n1", "n1", True), namespace="evil"))
    assert [found.uid for found in graph.blocking("n1")] == ["everywhere"], "a node may own in every namespace"


def test_dependents_follow_when_references_change() -> None:
    graph = Graph()
    graph.put(item("pod", owner("one")))
    assert graph.put(item("pod", owner("two"))) == {"pod"}
    assert not graph.dependents("one") and [found.uid for found in graph.dependents("two")] == ["pod"]


@pytest.mark.parametrize(
    ("reference", "namespace", "fits"),
    [
        (owner("rs"), "default", True),
        (owner("rs"), "other", False),
        (owner("rs", name="another"), "default", False),
        (owner("rs", kind="Deployment"), "default", False),
        (owner("rs", group="extensions/v1beta1"), "default", False),
    ],
)
def test_a_reference_must_name_the_object_that_its_uid_means(reference, namespace, fits) -> None:
    assert item("rs", resource=SETS).answers_to(reference, namespace) is fits


def test_an_owner_without_namespace_may_own_in_every_one() -> None:
    node = Item(NODES, "", "n1", "n1", "1", (), (), False)
    assert node.answers_to(Owner("v1", "Node", "n1", "n1"), "anywhere")


def test_a_cross_namespace_owner_reference_is_reported_once_in_either_order() -> None:
    for first, second in ((0, 1), (1, 0)):
        graph = Graph()
        pair = (item("rs", resource=SETS, namespace="theirs"), item("pod", owner("rs"), owner("near")))
        seen = []
        for found in (item("near", resource=SETS), pair[first], pair[second], pair[second], pair[first]):
            before = graph.items.get(found.uid)
            graph.put(found)
            seen += [(dependent.uid, reference.uid) for dependent, reference in graph.strays(found.uid, before)]
        assert seen == [("pod", "rs")]


def test_an_owner_without_a_namespace_suits_everybody_and_one_with_a_namespace_no_object_without() -> None:
    graph = Graph()
    for found in (item("node", resource=NODES, namespace=""), item("rs", resource=SETS)):
        graph.put(found)
    graph.put(item("pod", owner("node")))
    assert graph.strays("pod", None) == []
    graph.put(item("other", owner("rs"), resource=NODES, namespace=""))
    assert [dependent.uid for dependent, _ in graph.strays("other", None)] == ["other"]
