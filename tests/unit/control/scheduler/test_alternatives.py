"""Many terms compared together say what each says by itself, at a cost that their number does not multiply."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from control.scheduler import alternatives
from control.scheduler.alternatives import KEY_BYTES, MOST_BYTES, MOST_REMEMBERED, Alternatives
from control.scheduler.podinfo import PodInfo
from control.scheduler.term_sets import AffinityTerm, TermSet, term_set
from kube.api import core_v1, meta_v1
from kube.selectors import LabelSelector, Requirement
from tests.support.cost import Lines

from .clusters import ZONE, World, affinity, near, node, pod

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
KEYS, VALUES = ("a", "b", "namespace"), ("1", "2", "x", "-3")
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@st.composite
def requirements(draw, operators=("in", "notin", "exists", "!", "gt", "lt")) -> Requirement:
    operator = draw(st.sampled_from(operators))
    least, most = {"in": (1, 3), "notin": (1, 3), "gt": (1, 1), "lt": (1, 1)}.get(operator, (0, 0))
    values = draw(st.frozensets(st.sampled_from(VALUES), min_size=least, max_size=most))
    return Requirement(draw(st.sampled_from(KEYS)), operator, values)


def selectors(*operators: str) -> st.SearchStrategy[LabelSelector]:
    drawn = st.lists(requirements(operators) if operators else requirements(), max_size=4)
    return st.builds(LabelSelector, drawn.map(tuple), st.just(False)) | st.just(LabelSelector(nothing=True))


@SETTINGS
@given(st.lists(selectors(), max_size=12), st.lists(labels, min_size=1, max_size=4))
@example(
    [
        LabelSelector(
            (Requirement("b", "gt", frozenset({"1"})), Requirement("b", "gt", frozenset({"2"}))), nothing=False
        )
    ],
    [{"b": "2"}],
)
def test_each_conjunction_matches_what_its_selector_matches(chosen, objects) -> None:
    together = Alternatives(
        [None if s.nothing else [(r.key, r.operator, r.values) for r in s.requirements] for s in chosen]
    )
    for found in objects:
        expected = sum(1 << number for number, selector in enumerate(chosen) if selector.matches(found))
        assert together.matching(found) == expected
        with pytest.MonkeyPatch.context() as patch:  # as of objects with many labels
            patch.setattr(alternatives, "MOST_REMEMBERED", 0)
            assert together.matching(found) == expected


@pytest.mark.parametrize("remembered", [MOST_REMEMBERED, 0])
def test_bounds_are_compared_with_thousands_of_others(remembered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternatives, "MOST_REMEMBERED", remembered)
    together = Alternatives([[("n", "gt" if i % 2 else "lt", {str(i)})] for i in range(2000)])
    for value in (-1, 0, 700, 701, 1999, 5000):
        expected = {i for i in range(2000) if (value > i if i % 2 else value < i)}
        found = together.matching({"n": str(value)})
        assert {i for i in range(2000) if found >> i & 1} == expected


plain = selectors("in", "notin", "exists", "!")
terms = st.lists(
    st.tuples(
        st.builds(
            AffinityTerm,
            st.none() | st.frozensets(st.sampled_from(("n1", "n2"))),
            st.none() | plain,
            plain,
            st.sampled_from(("zone", "host", "rack")),
        ),
        st.integers(-2, 2),
    ),
    min_size=1,
    max_size=9,
)


@SETTINGS
@given(terms, st.sampled_from(("n1", "n2", "n3")), labels, labels)
def test_a_term_set_matches_the_same_pods_as_its_terms(drawn, namespace, of_pod, of_namespace) -> None:
    many = TermSet(tuple(drawn))
    known = {"zone": 1, "host": 1, "rack": 1}
    hits = [(t, weight) for t, weight in drawn if t.matches(namespace, of_pod, lambda name: of_namespace)]
    sums = {key: sum(weight for t, weight in hits if t.key == key) for key in {t.key for t, _ in hits}}
    found = dict(many.points(namespace, of_pod, lambda name: of_namespace, known.keys()))
    assert found == sums
    assert many.all_match(namespace, of_pod, lambda name: of_namespace) == (len(hits) == len(drawn))


def test_pods_of_one_template_share_their_terms() -> None:
    spec = affinity(required=[near({"app": f"a{i}"}) for i in range(20)], anti=True)
    one, other = (
        PodInfo(pod("p1", affinity=spec)).terms.required_anti_affinity,
        PodInfo(pod("p2", affinity=spec)).terms.required_anti_affinity,
    )
    assert one is other is not None
    assert term_set([]) is None


def test_terms_for_labels_that_no_node_has_count_once_a_node_has_them() -> None:
    world = World(node("n1", zone="a"), node("n2", zone="b"))
    world.put(pod("there", labels={"app": "x"}), "n1")
    racks = affinity(required=[near({"app": "x"}, f"rack{i}") for i in range(20)], anti=True)
    assert world.place(pod("first", affinity=racks)) in ("n1", "n2")
    world.cluster.set_node(node("n1", zone="a", labels={"rack7": "r"}))
    assert world.place(pod("second", affinity=racks)) == "n2"


def test_the_labels_of_a_namespace_are_looked_at_anew_when_they_change() -> None:
    known = {"default": {}, "team": {"kind": "noisy"}}
    world = World(node("n1", zone="a"), node("n2", zone="b"), namespaces=known)
    world.put(pod("there", labels={"app": "x"}, namespace="team"), "n1")
    away = near({"app": "x"}, ZONE)
    away.namespace_selector = meta_v1.LabelSelector(match_labels={"kind": "noisy"})
    incoming = core_v1.Affinity(
        pod_anti_affinity=core_v1.PodAntiAffinity(required_during_scheduling_ignored_during_execution=[away])
    )
    assert world.place(pod("p1", affinity=incoming)) == "n2"
    known["team"] = {"kind": "quiet"}
    world.cluster.namespaces_changed()
    world.put(pod("full", labels={"app": "x"}, namespace="default"), "n2")
    assert world.place(pod("p2", "1", affinity=incoming)) in ("n1", "n2")
    assert not world.cluster.weigh(PodInfo(pod("p3", affinity=incoming)).terms.required_anti_affinity)


def test_the_bytes_of_cached_results_are_limited() -> None:
    count = 4000
    together = Alternatives([[(f"k{i}", "in", {"x"})] for i in range(count)])
    for number in range(MOST_REMEMBERED):
        labels = {f"k{i}": f"{number}" for i in range(number, count)}
        assert together.matching(labels | {"k100": "x"}) == 1 << 100
    assert sum(len(present) for present in together._able) * KEY_BYTES <= 2 * MOST_BYTES
    many = Alternatives([[("a", "in", {"x"})]] * 100_000)
    for number in range(MOST_REMEMBERED):
        assert many.matching({"a": f"{number}"}) == 0
    assert sum(mask.bit_length() // 8 for mask in many._bad.values()) <= MOST_BYTES


def test_an_object_with_many_labels_costs_the_requirements_and_leaves_nothing_in_the_caches() -> None:
    counts = []
    for count in (1000, 2000):
        together = Alternatives([[(f"k{i}", "in", {"x"}), (f"n{i}", "notin", {"y"})] for i in range(count)])
        labels = {f"k{i}": "x" for i in range(count)} | {f"n{i}": "z" for i in range(count)}
        with Lines() as lines:
            assert together.matching(labels) == (1 << count) - 1
        assert together.matching(labels | {"k7": "z", "n8": "y"}) == (1 << count) - 1 - (1 << 7) - (1 << 8)
        assert not together._able and not together._bad and not together._fixed
        counts.append(lines.count)
    assert (counts[1] - counts[0]) / 1000 < 40


def test_cached_results_are_used_again() -> None:
    together = Alternatives([[("a", "in", {"x"})], [("b", "exists", ())]])
    for _ in range(3):
        assert together.matching({"a": "x", "b": "", "c": ""}) == 3
    assert len(together._able) == 1 and len(together._bad) == 2
