"""What an Accept header gets."""

import pytest

from control.server.negotiate import Wanted, negotiate
from kube.errors import StatusError


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Wanted()),
        ("*/*", Wanted()),
        ("application/json", Wanted()),
        ("application/yaml", Wanted(yaml=True)),
        ("application/vnd.kubernetes.protobuf,application/json", Wanted()),
        (
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,"
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            Wanted("table"),
        ),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Wanted("table", version="v1beta1")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Wanted()),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Wanted("metadata")),
        ("application/yaml;q=0.5,application/json", Wanted()),
        ("application/json;q=0.1,application/yaml;q=0.9", Wanted(yaml=True)),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Wanted()),
    ],
)
def test_the_first_that_can_be_served_is(accept: str, expected: Wanted) -> None:
    assert negotiate(accept) == expected


@pytest.mark.parametrize(
    "accept", ["application/vnd.kubernetes.protobuf", "text/html", "application/json;as=Foo;v=v1;g=x"]
)
def test_nothing_acceptable_is_406(accept: str) -> None:
    with pytest.raises(StatusError) as refused:
        negotiate(accept)
    assert refused.value.code == 406
    assert "only the following media types are accepted: application/json, application/yaml" in refused.value.message
