"""Work that network policies, pods and Services with very many ports make in a diagnosis, and the size of its sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from kube.api import core_v1, meta_v1, networking_v1
from tests.support.cost import Lines
from tests.support.iterations import Iterations
from wherry.why import pacing
from wherry.why.causes import policies, service_ports
from wherry.why.diagnosis import Diagnosis

POLICY_PORT, PORT = networking_v1.NetworkPolicyPort, core_v1.ServicePort(port=80)
RULE, PEER = networking_v1.NetworkPolicyIngressRule, networking_v1.NetworkPolicyPeer


class Reader:
    """Has network policies only."""

    def __init__(self, found: Sequence[policies.Policy]) -> None:
        self.found, self.now = found, datetime.now(UTC)

    async def all(self, kind: type[Any], namespace: str = "", **selectors: str) -> Sequence[Any]:
        return self.found if kind is policies.Policy else ()


def diagnosis(*found: policies.Policy) -> Diagnosis:
    reader: Any = Reader(found)
    other: Any = None
    return Diagnosis(reader, {}, other)


def metadata(name: str) -> meta_v1.ObjectMeta:
    return meta_v1.ObjectMeta(name=name, namespace="shop", labels={"app": "web"})


def pod(*ports: core_v1.ContainerPort, name: str = "web") -> core_v1.Pod:
    container = core_v1.Container(name="c", ports=list(ports))
    return core_v1.Pod(
        metadata=metadata(name), spec=core_v1.PodSpec(containers=[container]), status=core_v1.PodStatus()
    )


def policy(*rules: networking_v1.NetworkPolicyIngressRule, name: str = "few") -> policies.Policy:
    spec = networking_v1.NetworkPolicySpec(pod_selector=meta_v1.LabelSelector(), ingress=list(rules))
    return policies.Policy(metadata=metadata(name), spec=spec)


def many_ports(number: int) -> list[core_v1.ContainerPort]:
    return [core_v1.ContainerPort(container_port=1000 + index) for index in range(number)]


def named(number: int) -> list[networking_v1.NetworkPolicyPort]:
    return [POLICY_PORT(port=f"p{index}") for index in range(number)]


async def work(size: int) -> None:
    own, closed = diagnosis(policy(RULE(ports=named(size)))), pod(*many_ports(size))
    for _ in range(10):  # Services
        assert await policies.blocked(own, [closed], [PORT])
        assert not await policies.limited(own, [closed], [PORT])
    service = core_v1.Service(
        metadata=metadata("web"), spec=core_v1.ServiceSpec(ports=[core_v1.ServicePort(port=80 + n) for n in range(10)])
    )
    assert len(await service_ports.undeclared(own, service, [closed, closed])) == 10


async def test_the_work_grows_with_the_ports_and_not_with_their_square() -> None:
    found: list[int] = []
    for size in (200, 400):
        with Lines() as lines:
            await work(size)
        found.append(lines.count)
    assert found[1] < 2.2 * found[0] and found[0] < 60 * 200


async def test_other_requests_run_meanwhile_and_a_deadline_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0.0)
    with Iterations() as iterations:
        await work(1000)
    assert iterations.number > 1000
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await work(20_000)


@pytest.mark.parametrize(
    ("ports", "opened"),
    [
        ([], True),
        ([POLICY_PORT(port=80)], True),
        ([POLICY_PORT(port=80, protocol="UDP")], False),
        ([POLICY_PORT(protocol="TCP")], True),
        ([POLICY_PORT(port=70, end_port=75), POLICY_PORT(port=60, end_port=90)], True),
        ([POLICY_PORT(port=1), POLICY_PORT(port=70, end_port=79), POLICY_PORT(port=81, end_port=90)], False),
        ([POLICY_PORT(port="web")], True),
        ([POLICY_PORT(port="other")], False),
        ([POLICY_PORT(port="web", protocol="UDP")], False),
    ],
)
async def test_a_port_is_open_if_a_rule_has_its_number_a_range_or_its_name(ports: list[Any], opened: bool) -> None:
    own = diagnosis(policy(RULE(ports=ports)))
    closed = await policies.blocked(own, [pod(core_v1.ContainerPort(container_port=80, name="web"))], [PORT])
    assert bool(closed) is not opened


async def test_causes_are_short_whatever_the_policies_contain() -> None:
    peers = [PEER(pod_selector=meta_v1.LabelSelector(match_labels={"app": "x" * 60 + str(n)})) for n in range(20_000)]
    many = [policy(RULE(ports=named(5000)), name=f"policy-{index}") for index in range(500)]
    (closed,) = await policies.blocked(diagnosis(*many), [pod()], [PORT])
    assert len(closed.text) < 1000 and len(closed.fix) < 1000 and "495 more" in closed.text
    (some,) = await policies.limited(diagnosis(policy(RULE(from_=peers))), [pod()], [PORT])
    assert len(some.text) < 2000 and "and 19995 more may connect" in some.text
    service = core_v1.Service(metadata=metadata("web"), spec=core_v1.ServiceSpec(ports=[PORT]))
    (other,) = await service_ports.undeclared(diagnosis(), service, [pod(*many_ports(5000))])
    assert len(other.text) < 1000 and "and 4990 more" in other.text
