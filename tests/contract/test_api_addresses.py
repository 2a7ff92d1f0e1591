"""Forms of IP addresses and CIDRs in requests: rejections, and the warnings of each subresource."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.test_api_strictness import messages
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVICES = "/api/v1/namespaces/default/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        yield api


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}, **spec}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"externalIPs": ["::ffff:1.2.3.4"]}, "must not be an IPv4-mapped IPv6 address"),
        (
            {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]},
            "must not have bits set beyond the prefix length",
        ),
        ({"clusterIP": "010.96.0.77"}, "must not have leading 0s"),
    ],
)
async def test_an_ambiguous_address_is_rejected_and_nothing_is_allocated(
    server: ApiUnderTest, spec: dict[str, Any], message: str
) -> None:
    answer = await server.request("POST", SERVICES, service("ambiguous", **spec))
    assert answer.status == 422 and answer.json["message"].endswith(message)
    records = (await server.request("GET", "/apis/networking.k8s.io/v1/ipaddresses")).json["items"]
    assert not [each for each in records if each["spec"]["parentRef"]["name"] == "ambiguous"]


async def test_warnings_of_a_service_and_of_its_status(server: ApiUnderTest) -> None:
    spec = {"type": "LoadBalancer", "loadBalancerIP": "2001:DB8::1", "trafficDistribution": "PreferClose"}
    made = await server.request("POST", SERVICES, service("warned", **spec))
    assert made.status == 201 and messages(made) == [
        'spec.loadBalancerIP: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")',
        'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"',
    ]
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "2001:DB8::2"}]}}}
    answer = await server.request("PATCH", f"{SERVICES}/warned/status", status, headers=MERGE)
    assert answer.status == 200 and messages(answer) == [
        'status.loadBalancer.ingress[0]: IPv6 address "2001:DB8::2" should be in RFC 5952 canonical format ("2001:db8::2")'
    ]
    bad = {"status": {"loadBalancer": {"ingress": [{"ip": "010.0.0.1"}]}}}
    answer = await server.request("PATCH", f"{SERVICES}/warned/status", bad, headers=MERGE)
    assert answer.status == 422 and answer.json["message"].endswith("must not have leading 0s")


async def test_an_update_of_the_status_repeats_no_warning_of_the_spec(server: ApiUnderTest) -> None:
    metadata, selector = {"labels": {"a": "b"}}, {"matchLabels": {"a": "b"}}
    template = {
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"beta.kubernetes.io/os": "linux"}},
    }
    made = await server.request(
        "POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"selector": selector, "template": template}}
    )
    assert made.status == 201 and len(messages(made)) == 1
    claim = {
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1.5"}}},
    }
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    made = await server.request("POST", claims, claim)
    assert made.status == 201 and messages(made)
    answer = await server.request("PATCH", f"{claims}/c/status", {"status": {"phase": "Pending"}}, headers=MERGE)
    assert answer.status == 200 and messages(answer) == []
