"""Paths and methods mean what apiserver's RequestInfoFactory says."""

import pytest

from control.interfaces.requestinfo import parse_path, with_query
from kube.selectors import parse_fields


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/namespaces/default/pods/p", ("get", "", "v1", "default", "pods", "", "p")),
        ("GET", "/api/v1/namespaces/default/pods", ("list", "", "v1", "default", "pods", "", "")),
        ("GET", "/api/v1/pods", ("list", "", "v1", "", "pods", "", "")),
        ("POST", "/api/v1/namespaces/default/pods", ("create", "", "v1", "default", "pods", "", "")),
        (
            "PUT",
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
            ("update", "apps", "v1", "n", "deployments", "scale", "d"),
        ),
        ("PATCH", "/api/v1/nodes/n/status", ("patch", "", "v1", "", "nodes", "status", "n")),
        ("DELETE", "/api/v1/namespaces/n/pods/p", ("delete", "", "v1", "n", "pods", "", "p")),
        ("DELETE", "/api/v1/namespaces/n/pods", ("deletecollection", "", "v1", "n", "pods", "", "")),
        ("GET", "/api/v1/namespaces", ("list", "", "v1", "", "namespaces", "", "")),
        ("GET", "/api/v1/namespaces/n", ("get", "", "v1", "n", "namespaces", "", "n")),
        ("PUT", "/api/v1/namespaces/n/finalize", ("update", "", "v1", "n", "namespaces", "finalize", "n")),
        ("GET", "/api/v1/watch/namespaces/n/pods", ("watch", "", "v1", "n", "pods", "", "")),
        ("GET", "/api/v1/watch/namespaces/n/pods/p", ("watch", "", "v1", "n", "pods", "", "p")),
        ("GET", "/api/v1/watch/namespaces/n/pods/p/log", ("watch", "", "v1", "n", "pods", "log", "p")),
        ("GET", "/api/v1/proxy/namespaces/n/pods/p/log", ("proxy", "", "v1", "n", "pods", "", "p")),
        ("HEAD", "/api/v1/namespaces/n/pods/p", ("get", "", "v1", "n", "pods", "", "p")),
        ("GET", "/api/v1/namespaces/n/services/s/proxy/a/b", ("get", "", "v1", "n", "services", "proxy", "s")),
    ],
)
def test_a_resource_path_is_read(method: str, path: str, expected: tuple[str, ...]) -> None:
    info = parse_path(method, path)
    assert info.is_resource
    found = (info.verb, info.group, info.version, info.namespace, info.resource, info.subresource, info.name)
    assert found == expected


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/version"]
)
def test_other_paths_are_no_resources(path: str) -> None:
    info = parse_path("GET", path)
    assert not info.is_resource and info.verb == "get" and info.path == path


def test_a_proxied_path_is_kept() -> None:
    assert parse_path("GET", "/api/v1/nodes/n/proxy/stats/summary").rest == "stats/summary"


def test_the_query_makes_a_list_a_watch_and_names_the_one_object() -> None:
    info = parse_path("GET", "/api/v1/namespaces/n/pods")
    assert with_query(info, watch=True, fields=parse_fields("")).verb == "watch"
    assert with_query(info, watch=False, fields=parse_fields("metadata.name=p")).name == "p"
    assert with_query(info, watch=False, fields=parse_fields("spec.nodeName=n,metadata.name==p")).name == "p"
    assert with_query(info, watch=False, fields=parse_fields("metadata.name!=p")).name == ""
    assert with_query(info, watch=False, fields=parse_fields("metadata.name=a,metadata.name=b")).name == "a"
    assert with_query(info, watch=False, fields=parse_fields("metadata.name=b,metadata.name=a")).name == "a", (
        "terms are sorted"
    )
    for other in (
        "metadata.name=a/b",
        "metadata.name=..",
        "metadata.name=a%2fb",
        "metadata.name=",
        " metadata.name=a",
    ):
        assert with_query(info, watch=False, fields=parse_fields(other)).name == ""
    many = parse_path("DELETE", "/api/v1/namespaces/n/pods")
    assert with_query(many, watch=True, fields=parse_fields("metadata.name=p")) is many, (
        "a collection is not deleted by a right to one name"
    )
    old = parse_path("GET", "/api/v1/watch/namespaces/n/pods")
    assert with_query(old, watch=True, fields=parse_fields("metadata.name=p")) is old
    one = parse_path("GET", "/api/v1/namespaces/n/pods/p")
    assert with_query(one, watch=True, fields=parse_fields("")).verb == "get", (
        "a watch of one object is told by a field selector, not by its path"
    )
