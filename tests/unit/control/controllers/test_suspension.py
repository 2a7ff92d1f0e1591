"""Detection of a suspension of the node lifecycle controller."""

from __future__ import annotations

import pytest

from control.controllers.nodes.suspension import CHECK_SECONDS, SuspensionDetector


@pytest.mark.parametrize(
    ("checks", "suspended"),
    [
        ([100.0], 0.0),
        ([100.0, 100.0 + CHECK_SECONDS], 0.0),
        ([100.0, 100.0 + 2 * CHECK_SECONDS], 0.0),
        ([100.0, 160.0], 60.0 - CHECK_SECONDS),
        ([100.0, 160.0, 160.0], 0.0),
        ([100.0, 160.0, 165.0], 0.0),
    ],
)
def test_only_a_gap_of_more_than_two_intervals_is_a_suspension(checks: list[float], suspended: float) -> None:
    detector = SuspensionDetector()
    assert [detector.suspended(check) for check in checks][-1] == suspended
