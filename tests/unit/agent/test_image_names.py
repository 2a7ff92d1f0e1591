"""Image names, and the credentials that match them."""

from __future__ import annotations

import base64
import json

import pytest

from agent.images import names as image_names
from agent.images import registry_auth
from kube.api import core_v1


# -- images -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("busybox", "busybox:latest"),
        ("busybox:1", "busybox:1"),
        ("a.example:5000/x/y", "a.example:5000/x/y:latest"),
        ("x@sha256:" + "a" * 64, "x@sha256:" + "a" * 64),
    ],
)
def test_a_tag_is_meant_where_none_is_given(image: str, full: str) -> None:
    assert image_names.with_default_tag(image) == full


@pytest.mark.parametrize("image", ["", "Upper", "a//b", "x:", "x:-", "-x", "a b", "x@sha256:1", "../x"])
def test_bad_image_names_are_refused(image: str) -> None:
    with pytest.raises(image_names.InvalidImageName):
        image_names.with_default_tag(image)


def test_credentials_match_by_host_port_and_path_the_longest_first() -> None:
    auths = {
        "https://reg.example": {"username": "host", "password": "1"},
        "reg.example/team": {"auth": base64.b64encode(b"team:2").decode()},
        "*.wild.example:5000": {"username": "wild", "password": "3"},
        "https://index.docker.io/v1/": {"username": "hub", "password": "4"},
    }
    data = {".dockerconfigjson": base64.b64encode(json.dumps({"auths": auths}).encode()).decode()}
    known = registry_auth.credentials(
        [core_v1.Secret(type="kubernetes.io/dockerconfigjson", data=data), core_v1.Secret(type="Opaque", data=data)]
    )

    def users(image: str) -> list[str]:
        return [c.username for c in registry_auth.matching(image, known)]

    assert users("reg.example/team/app:1") == ["team", "host"]
    assert users("reg.example/other") == ["host"]
    assert users("a.wild.example:5000/x") == ["wild"] and users("a.b.wild.example:5000/x") == []
    assert users("a.wild.example/x") == []
    assert users("busybox") == users("library/busybox") == users("index.docker.io/busybox") == ["hub"]
    assert users("docker.io/team/app:1") == users("index.docker.io/team/app:1") == ["hub"]
    assert users("Busybox/app:1") == [], "a registry on a host of that name"


def test_credentials_with_an_endless_address_are_for_no_image_and_only_so_many_are_compared() -> None:
    def known(*addresses: str) -> list[registry_auth.Credential]:
        return [registry_auth.Credential(address, "u", "p") for address in addresses]

    assert registry_auth.matching("a.io/x", known("*" * registry_auth.LONGEST + ".io", "*.io")) == known("*.io")
    many = known(*(f"r{number}.io" for number in range(registry_auth.MOST)), "a.io")
    assert registry_auth.matching("a.io/x", many) == []
    deep = core_v1.Secret(
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": base64.b64encode(b'{"auths":' + b"[" * 100_000).decode()},
    )
    assert registry_auth.credentials([deep]) == []


@pytest.mark.parametrize(
    ("image", "listed"),
    [
        ("app:1", "docker.io/library/app:1"),
        ("team/app:1", "docker.io/team/app:1"),
        ("r.test/app:1", "r.test/app:1"),
        ("r:5000/app@sha256:00", "r:5000/app@sha256:00"),
        ("r:5000/app:1@sha256:00", "r:5000/app@sha256:00"),
        ("app:1@sha256:00", "docker.io/library/app@sha256:00"),
        ("localhost/app:1", "localhost/app:1"),
        ("docker.io/app:1", "docker.io/library/app:1"),
        ("index.docker.io/app", "docker.io/library/app"),
        ("index.docker.io/team/app:1@sha256:00", "docker.io/team/app@sha256:00"),
        ("index.docker.io:443/app:1", "index.docker.io:443/app:1"),
        ("team/index.docker.io/app:1", "docker.io/team/index.docker.io/app:1"),
        ("Team/app:1", "Team/app:1"),
        ("[::1]:5000/app:1", "[::1]:5000/app:1"),
    ],
)
def test_names_are_listed_with_their_registry(image: str, listed: str) -> None:
    assert image_names.with_registry(image) == listed


def test_names_lose_tag_and_digest_but_not_the_port() -> None:
    names = ("a:1", "r:5000/a", "r:5000/a:1", "r:5000/a:1@sha256:00", "a@sha256:00")
    assert [image_names.without_tag(name) for name in names] == ["a", "r:5000/a", "r:5000/a", "r:5000/a", "a"]


@pytest.mark.parametrize(
    ("pattern", "image", "wanted"),
    [
        ("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu.amazonaws.com/app:1", True),
        ("*.io", "gcr.io/app", True),
        ("*.io", "eu.gcr.io/app", False),
        ("*.*.io", "eu.gcr.io/app", True),
        ("r.test:8080/path", "r.test:8080/path/app:1", True),
        ("r.test:8080", "r.test/app", False),
        ("r.test/path", "r.test/other", False),
        ("docker.io", "nginx", True),
        ("docker.io/library", "nginx:1", True),
        ("https://index.docker.io/v1/", "index.docker.io/team/app:1", True),
        ("index.docker.io/team", "team/app:1", True),
        ("docker.io/team", "index.docker.io/team/app:1", True),
        ("docker.io/library", "docker.io/nginx:1", True),
        ("docker.io/team", "index.docker.io/other/app:1", False),
    ],
)
def test_patterns_of_plugins(pattern: str, image: str, wanted: bool) -> None:
    assert registry_auth.matches(pattern, image) is wanted
