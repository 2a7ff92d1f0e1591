"""The namespace of an object is that of its URL."""

from __future__ import annotations

import pytest

from control.registry.metadata import match_namespace
from kube.errors import StatusError
from kube.resources import by_kind


def test_a_cluster_scoped_object_loses_its_namespace() -> None:
    nodes = by_kind("v1", "Node")
    assert nodes is not None
    metadata = {"name": "n", "namespace": "default"}
    match_namespace(nodes, metadata, "")
    assert metadata == {"name": "n"}


def test_the_namespaces_of_object_and_url_agree() -> None:
    pods = by_kind("v1", "Pod")
    assert pods is not None
    metadata = {"name": "n"}
    match_namespace(pods, metadata, "default")
    assert metadata["namespace"] == "default"
    with pytest.raises(StatusError, match="does not match the namespace sent on the request"):
        match_namespace(pods, {"name": "n", "namespace": "other"}, "default")
