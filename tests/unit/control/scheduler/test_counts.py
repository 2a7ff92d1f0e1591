"""Indexes of what is asked of all pods: each is a cost of every pod that comes or goes."""

from __future__ import annotations

import pytest

from control.scheduler.counts import LARGE, MOST_INDEXES, SIMPLE, PodIndexes
from control.scheduler.question import Question
from kube.selectors import parse_labels


@pytest.mark.parametrize(("terms", "kept"), [(1, MOST_INDEXES), (SIMPLE, MOST_INDEXES), (5000, MOST_INDEXES // LARGE)])
def test_fewer_indexes_are_kept_whose_selectors_are_large(terms: int, kept: int) -> None:
    indexes = PodIndexes(lambda namespace: {}, set())
    selector = parse_labels(",".join(f"k{number}" for number in range(terms)))
    for number in range(2 * kept):
        indexes.matching(Question(f"n{number}", selector), [])
    assert len(indexes._indexes) == kept
