"""Paths and parameters that the server of the page forwards, and what it refuses."""

from __future__ import annotations

import pytest

from kube.errors import StatusError
from wherry.ui import paths
from wherry.ui.watching import watch


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nodes",
        "/api/v1/nodes/n-1.example.org",
        "/api/v1/pods",
        "/api/v1/namespaces",
        "/api/v1/namespaces/shop",
        "/api/v1/namespaces/shop/pods/web-1",
        "/api/v1/namespaces/shop/events",
        "/apis/apps/v1/deployments",
        "/apis/batch/v1/namespaces/shop/jobs/one",
    ],
)
def test_collections_and_objects_of_the_page_are_read(path: str) -> None:
    target = paths.parse(path)
    assert target.path == path and not target.log


def test_a_log_is_of_one_pod() -> None:
    assert paths.parse("/api/v1/namespaces/shop/pods/web-1/log").log
    assert not paths.parse("/api/v1/namespaces/shop/pods").log


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/secrets",
        "/api/v1/namespaces/shop/secrets/db",
        "/api/v1/namespaces/shop/configmaps",
        "/api/v1/namespaces/shop/serviceaccounts/a/token",
        "/api/v1/namespaces/shop/pods/web-1/exec",
        "/api/v1/namespaces/shop/pods/web-1/attach",
        "/api/v1/namespaces/shop/pods/web-1/portforward",
        "/api/v1/namespaces/shop/pods/web-1/proxy",
        "/api/v1/nodes/n/proxy",
        "/api/v1/nodes/n/log",
        "/api/v1/pods/web-1",
        "/api/v1/pods/log",
        "/api/v1/namespaces/shop/nodes",
        "/api/v1/namespaces/../secrets",
        "/api/v1/namespaces/shop/pods/..",
        "/api/v1/namespaces/shop/pods/a%2fb",
        "/api/v1/namespaces/shop/pods/a?b",
        "/api/v1/namespaces/shop/pods/web-1/log/",
        "/api/v1/watch/pods",
        "/api/v1/pods\n",
        "/api/v1//pods",
        "/apis/apps/v1",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/metrics",
        "/",
        "",
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(StatusError, match="does not read this path") as found:
        paths.parse(path)
    assert found.value.code == 403


@pytest.mark.parametrize(
    ("path", "pairs"),
    [
        ("/api/v1/pods", [("watch", "true")]),
        ("/api/v1/pods", [("follow", "true")]),
        ("/api/v1/pods", [("limit", "1"), ("limit", "2")]),
        ("/api/v1/pods", [("labelSelector", "x" * 5000)]),
        ("/api/v1/namespaces/a/pods/b/log", [("labelSelector", "a")]),
    ],
)
def test_other_parameters_are_refused(path: str, pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(StatusError) as found:
        paths.query(paths.parse(path), pairs)
    assert found.value.code == 400


def test_a_watch_is_of_a_collection_with_its_selectors() -> None:
    assert watch("/api/v1/namespaces/shop/pods?labelSelector=a%3Db&resourceVersion=7") == (
        "/api/v1/namespaces/shop/pods",
        {"labelSelector": "a=b", "resourceVersion": "7"},
    )


@pytest.mark.parametrize(
    "text",
    [
        "/api/v1/namespaces/shop/pods/web-1",
        "/api/v1/namespaces/shop/pods/web-1/log",
        "http://example.org/api/v1/pods",
        "//example.org/api/v1/pods",
        "/api/v1/secrets",
        "/api/v1/pods?watch=false",
        "http://[x/api/v1/pods",
    ],
)
def test_nothing_else_is_watched(text: str) -> None:
    with pytest.raises(StatusError):
        watch(text)
