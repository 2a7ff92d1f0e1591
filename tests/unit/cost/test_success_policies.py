"""Success policies of Jobs, whose rules may name a megabyte of indexes, are evaluated once for each state of a Job."""

from __future__ import annotations

import pytest

from control.controllers.job import indexes, policies
from kube.api import batch_v1


def test_rules_of_a_success_policy_are_read_when_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    read, parse = list[str | None](), indexes.parse

    def counted(text: str | None, completions: int) -> indexes.Indexes:
        read.append(text)
        return parse(text, completions)

    monkeypatch.setattr(indexes, "parse", counted)
    rules = [batch_v1.SuccessPolicyRule(succeeded_indexes="0-2,5") for _ in range(20)]
    policy, early = batch_v1.SuccessPolicy(rules=rules), policies.EarlySuccess()
    for done, times in (((), 0), ((1,), 20), ((1,), 20), ((0, 1), 40)):
        assert early.message("uid", 1, policy, indexes.of(done), 10) == ""
        assert len(read) == times
    assert early.message("uid", 1, policy, indexes.of((0, 1, 2, 5)), 10) == "Matched rules at index 0"
    early.forget("uid")
    assert early.message("uid", 1, policy, indexes.of((0, 1)), 10) == "" and len(read) == 61
