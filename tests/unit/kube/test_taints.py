"""Tolerations that were read once say the same as each of them asked in turn."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kube.api import core_v1
from kube.taints import Tolerations, tolerated

TOLERATIONS = [
    core_v1.Toleration(key=key, operator=operator, value=value, effect=effect)
    for key, operator, value, effect in itertools.product(
        (None, "a", "b"),
        (None, "Equal", "Exists", "Gt", "Lt", "Near"),
        (None, "1", "5", "x"),
        (None, "NoExecute", "NoSchedule"),
    )
]
TAINTS = [
    core_v1.Taint(key=key, value=value, effect=effect)
    for key, value, effect in itertools.product(
        ("a", "b", "c"), (None, "0", "3", "7", "x"), ("NoExecute", "NoSchedule")
    )
]


def test_each_toleration_covers_what_it_tolerates() -> None:
    for toleration, taint in itertools.product(TOLERATIONS, TAINTS):
        assert Tolerations([toleration]).cover(taint) == tolerated(taint, [toleration]), (toleration, taint)


@given(st.lists(st.sampled_from(TOLERATIONS), max_size=6))
def test_tolerations_cover_what_one_of_them_tolerates(tolerations: list[core_v1.Toleration]) -> None:
    read = Tolerations(tolerations)
    for taint in TAINTS:
        assert read.cover(taint) == tolerated(taint, tolerations)
