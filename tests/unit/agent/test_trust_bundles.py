"""Requests for trust bundles, whatever the pod calls them, and invalid responses."""

from __future__ import annotations

from typing import Any

import pytest

from agent.volumes.payload import VolumeError
from agent.volumes.trust_bundles import TrustBundles
from kube.api import core_v1

PATH = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"


class Api:
    def __init__(self, answer: bytes) -> None:
        self.answer, self.received = answer, list[str]()

    async def call(self, method: str, path: str, **_: Any) -> bytes:
        self.received.append(path)
        return self.answer


def source(name: str | None = None) -> core_v1.ClusterTrustBundleProjection:
    return core_v1.ClusterTrustBundleProjection(path="ca.pem", name=name, signer_name=None if name else "example.com/s")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("example.com:mine:one", "example.com:mine:one"),
        ("a?watch=1", "a%3Fwatch%3D1"),
        ("a b#c", "a%20b%23c"),
    ],
)
async def test_a_bundles_name_is_one_part_of_the_path(name: str, path: str) -> None:
    api = Api(b'{"spec": {"trustBundle": "pem"}}')
    assert await TrustBundles(api).read(source(name)) == "pem"  # type: ignore[arg-type]
    assert api.received == [f"{PATH}/{path}"]


ANSWERS = [b"<html>", b'{"spec": 1, "items": 1}', b"[]", b'{"spec":{"trustBundle":"\xff"},"items":[{"kind":"\xff"}]}']


@pytest.mark.parametrize("name", ["one", None])
@pytest.mark.parametrize(
    "answer",
    ANSWERS,
)
async def test_an_answer_that_is_no_bundle_is_the_volumes_error(name: str | None, answer: bytes) -> None:
    with pytest.raises(VolumeError, match="unable to read ClusterTrustBundle"):
        await TrustBundles(Api(answer)).read(source(name))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [".", "..", "../../../api/v1/secrets"])
async def test_a_name_that_leads_elsewhere_in_the_path_is_refused(name: str) -> None:
    api = Api(b"{}")
    with pytest.raises(VolumeError):
        await TrustBundles(api).read(source(name))  # type: ignore[arg-type]
    assert api.received == []
