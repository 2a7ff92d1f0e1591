"""The hash by which an agent knows that a container was made of the definition that it has."""

from __future__ import annotations

import pytest

from agent.images.names import InvalidImageName, with_default_tag
from agent.lifecycle import container_hash, hashing
from agent.lifecycle.hashing import is_hash_of
from kube.api import core_v1


def container(name: str, image: str) -> core_v1.Container:
    return core_v1.Container(name=name, image=image, command=["/bin/sh"])


@pytest.mark.parametrize(
    ("name", "image", "hash"),
    [
        ("test_container", "foo/image:v1", "8e45cbd0"),  # the value that upstream's own test of HashContainer holds to
        ("main", "wherry.test/busybox:1", "bb014bc0"),
    ],
)
def test_the_hash_is_the_one_that_upstreams_kubelet_writes(name: str, image: str, hash: str) -> None:
    assert container_hash(container(name, image)) == hash


def test_containers_of_an_agent_from_before_are_known_too() -> None:
    same = container("main", "wherry.test/busybox:1")
    assert is_hash_of("2924eb6f", same)
    assert is_hash_of(container_hash(same), same)
    assert not is_hash_of(container_hash(same), container("main", "wherry.test/busybox:2"))


def test_hashes_of_long_names_are_not_kept() -> None:
    kept = hashing._of.cache_info().currsize, hashing._former.cache_info().currsize  # type: ignore[attr-defined]
    assert not is_hash_of("x", container("main", "a" * 1_000_000))
    assert (hashing._of.cache_info().currsize, hashing._former.cache_info().currsize) == kept  # type: ignore[attr-defined]


def test_a_name_that_no_image_can_have_takes_no_time() -> None:
    assert len(container_hash(container("main", "a" * 1_000_000))) == 8


def test_an_image_name_that_is_too_long_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(InvalidImageName, match="repository name must not be more than 255 characters"):
        with_default_tag("a/" * 500_000 + "a")
    longest = "a" * 63 + "/" + "b" * 255 + ":" + "c" * 128 + "@sha512:" + "0" * 128
    assert with_default_tag(longest) == longest
