"""Detection of a suspension of the process that judges nodes."""

from __future__ import annotations

import pytest

from control.controllers.nodes.attendance import PULSE, Attendance


@pytest.mark.parametrize(
    ("looks", "lost"),
    [
        ([100.0], 0.0),
        ([100.0, 100.0 + PULSE], 0.0),
        ([100.0, 100.0 + 2 * PULSE], 0.0),
        ([100.0, 160.0], 60.0 - PULSE),
        ([100.0, 160.0, 160.0], 0.0),
        ([100.0, 160.0, 165.0], 0.0),
    ],
)
def test_only_a_gap_of_more_than_two_pulses_is_an_absence(looks: list[float], lost: float) -> None:
    attendance = Attendance()
    assert [attendance.lost(look) for look in looks][-1] == lost
