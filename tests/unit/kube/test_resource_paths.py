"""The paths that clients build from names, which in references are not always validated."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import names, resources
from kube.api import core_v1, rbac_v1
from kube.errors import StatusError

SECRETS = resources.of(core_v1.Secret)


def test_ordinary_names_stand_as_they_are() -> None:
    assert SECRETS.path("default", "web-1.a") == "/api/v1/namespaces/default/secrets/web-1.a"
    assert resources.of(rbac_v1.ClusterRole).path("", "system:node") == (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"
    )


@pytest.mark.parametrize("name", ["..", ".", "../configmaps/a", "a/status", "a%2fb"])
@pytest.mark.parametrize("field", ["namespace", "name"])
def test_a_name_that_would_lead_elsewhere_is_refused(field: str, name: str) -> None:
    where = {"namespace": "default", "name": "web", field: name}
    with pytest.raises(StatusError) as raised:
        SECRETS.path(**where)
    assert raised.value.code == 400
    assert f'invalid resource name "{name}"' in raised.value.message


@given(st.text(min_size=1).filter(lambda name: not names.path_segment(name)))
def test_a_name_stays_one_segment_without_a_query(name: str) -> None:
    """A query in a name would be one of the request: `?dryRun=All`."""
    path = SECRETS.path("default", name, "status")
    assert "?" not in path and "#" not in path and path.isascii() and not any(c.isspace() for c in path)
    assert [unquote(part) for part in path.split("/")] == [
        "",
        "api",
        "v1",
        "namespaces",
        "default",
        "secrets",
        name,
        "status",
    ]
