from __future__ import annotations

import pytest

from control.controllers.discovery import DiscoveredResource
from kube.errors import StatusError

SERVED = DiscoveredResource("example.com", "v1", "fleets", "Fleet", True, frozenset())


@pytest.mark.parametrize(
    "name, path",
    [
        ("", "fleets"),
        ("system:a", "fleets/system:a"),
        ("a b?watch=1#x", "fleets/a%20b%3Fwatch%3D1%23x"),
    ],
)
def test_a_name_is_one_segment_of_a_path(name: str, path: str) -> None:
    assert SERVED.path("default", name) == f"/apis/example.com/v1/namespaces/default/{path}"


@pytest.mark.parametrize("name", ["../../secrets", "web:80/proxy/x", "..", "a%2Fb"])
def test_a_name_that_no_path_can_contain_is_refused(name: str) -> None:
    with pytest.raises(StatusError, match="invalid resource name") as raised:
        SERVED.path("default", name)
    assert raised.value.code == 400
