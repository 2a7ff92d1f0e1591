from __future__ import annotations

import pytest

from control.controllers.discovery import Served

SERVED = Served("example.com", "v1", "fleets", "Fleet", True, frozenset())


@pytest.mark.parametrize(
    "name, path",
    [
        ("", "fleets"),
        ("system:a", "fleets/system:a"),
        ("../../../secrets?watch=1#x", "fleets/..%2F..%2F..%2Fsecrets%3Fwatch%3D1%23x"),
    ],
)
def test_a_name_is_one_segment_of_a_path(name: str, path: str) -> None:
    assert SERVED.path("default", name) == f"/apis/example.com/v1/namespaces/default/{path}"
