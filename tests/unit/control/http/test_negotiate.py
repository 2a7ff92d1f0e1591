"""Content negotiation by the Accept header."""

import pytest

from control.http.negotiate import MediaTypeOptions, negotiate
from kube.errors import StatusError


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", MediaTypeOptions()),
        ("*/*", MediaTypeOptions()),
        ("application/json", MediaTypeOptions()),
        ("application/yaml", MediaTypeOptions(yaml=True)),
        ("application/vnd.kubernetes.protobuf,application/json", MediaTypeOptions(protobuf=True)),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            MediaTypeOptions("metadata", protobuf=True),
        ),
        (
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,"
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            MediaTypeOptions("table"),
        ),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", MediaTypeOptions("table", version="v1beta1")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", MediaTypeOptions()),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", MediaTypeOptions("metadata")),
        ("application/yaml;q=0.5,application/json", MediaTypeOptions()),
        ("application/json;q=0.1,application/yaml;q=0.9", MediaTypeOptions(yaml=True)),
        ("text/html,application/xhtml+xml,*/*;q=0.8", MediaTypeOptions()),
    ],
)
def test_the_first_that_can_be_served_is(accept: str, expected: MediaTypeOptions) -> None:
    assert negotiate(accept) == expected


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Foo;v=v1;g=x", "application/cbor"])
def test_nothing_acceptable_is_406(accept: str) -> None:
    with pytest.raises(StatusError) as refused:
        negotiate(accept)
    assert refused.value.code == 406
    offered = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    assert refused.value.message == f"only the following media types are accepted: {offered}"


def test_a_kind_without_protobuf_is_served_as_what_is_named_after_it() -> None:
    both = "application/vnd.kubernetes.protobuf,application/json"
    assert negotiate(both, protobuf=False) == MediaTypeOptions()
    with pytest.raises(StatusError, match=r"accepted: application/json, application/yaml$"):
        negotiate("application/vnd.kubernetes.protobuf", protobuf=False)
    partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert negotiate(partial, protobuf=False) == MediaTypeOptions("metadata", protobuf=True)


def test_a_watch_as_yaml_is_not_acceptable() -> None:
    assert negotiate("application/vnd.kubernetes.protobuf;stream=watch", stream=True).content_type == (
        b"application/vnd.kubernetes.protobuf;stream=watch"
    )
    assert negotiate("application/yaml,application/json", stream=True).content_type == b"application/json"
    with pytest.raises(StatusError, match="application/json;stream=watch") as refused:
        negotiate("application/yaml", stream=True)
    assert refused.value.code == 406
