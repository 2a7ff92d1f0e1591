"""Sources of projected volumes for which requests are sent: limited before the first request, and trust bundles are shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.volumes.manager import MountsFailed, VolumeManager
from agent.volumes.requested_sources import MOST
from agent.volumes.trust_bundles import CACHE_SECONDS, MISSING_SECONDS, TrustBundles
from kube.api import core_v1
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.unit.agent.pods import mounting, pod


def _token(number: int) -> dict[str, Any]:
    return {"serviceAccountToken": {"path": f"t{number}", "audience": f"a{number}"}}


def _bundle(number: int) -> dict[str, Any]:
    return {"clusterTrustBundle": {"path": f"b{number}", "name": f"n{number}", "optional": True}}


@pytest.mark.parametrize("source", [_token, _bundle])
async def test_a_pod_with_too_many_sources_gets_an_error_before_any_request(tmp_path: Path, source: Any) -> None:
    some = MOST // 2
    volumes = [
        {"name": "first", "projected": {"sources": [source(number) for number in range(some)]}},
        {"name": "second", "projected": {"sources": [source(number) for number in range(some + 1)]}},
    ]
    given = pod(mounting("first", "second"), volumes=volumes)
    manager = VolumeManager(tmp_path, *[None] * 4)  # type: ignore[arg-type]
    message = rf'volume "second" : the pod has {MOST + 1} sources of .* and trust bundles, {MOST} are allowed'
    with pytest.raises(MountsFailed, match=message):
        await manager.mount(given)


class Api:
    """An API server with one bundle, if it is there."""

    def __init__(self, *, there: bool) -> None:
        self.there, self.received = there, 0

    async def call(self, method: str, path: str, **_: Any) -> bytes:
        self.received += 1
        if not self.there:
            raise StatusError(404, "NotFound", "not found")
        return b'{"spec": {"trustBundle": "pem"}}'


@pytest.mark.parametrize(("there", "seconds"), [(True, CACHE_SECONDS), (False, MISSING_SECONDS)])
async def test_a_trust_bundle_is_requested_once_for_all_pods_in_a_while(there: bool, seconds: float) -> None:
    api, clock = Api(there=there), FakeClock()
    bundles = TrustBundles(api, clock)  # type: ignore[arg-type]
    source = core_v1.ClusterTrustBundleProjection(path="ca.pem", name="one", optional=True)
    elsewhere = core_v1.ClusterTrustBundleProjection(path="another.pem", name="one", optional=True)
    for _ in range(10):
        assert await bundles.read(source) == await bundles.read(elsewhere) == ("pem" if there else None)
    assert api.received == 1
    await clock.advance(seconds)
    await bundles.read(source)
    assert api.received == 2


async def test_a_bundle_that_a_pod_requires_is_requested_again_until_it_is_there() -> None:
    api = Api(there=False)
    bundles = TrustBundles(api, FakeClock())  # type: ignore[arg-type]
    source = core_v1.ClusterTrustBundleProjection(path="ca.pem", name="one")
    for _ in range(2):
        with pytest.raises(Exception, match="unable to read ClusterTrustBundle"):
            await bundles.read(source)
    api.there = True
    assert await bundles.read(source) == "pem"
