"""The variables of many and large Services: their number, and the thread that creates them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.pods.container_environment import PORTS, VARIABLES, make_environment
from agent.pods.dependencies import PodDependencies
from agent.podspec import environment
from agent.podspec.environment import ContainerConfigError, EnvironmentSources
from kube.api import core_v1, meta_v1

CONTAINER = core_v1.Container(name="c", image="x")
POD = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace="a", uid="u"))


class NoReferences:
    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        return core_v1.ConfigMap(data={"K": "v"})

    def secret(self, namespace: str, name: str) -> None:
        return None


def service(name: str, ports: int) -> core_v1.Service:
    return core_v1.Service(
        metadata=meta_v1.ObjectMeta(name=name, namespace="a"),
        spec=core_v1.ServiceSpec(
            cluster_ip="10.96.1.7",
            ports=[core_v1.ServicePort(name=f"p{n}", port=n + 1, protocol="TCP") for n in range(ports)],
        ),
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which Services' variables are made, one a variable."""
    found, real = list[str](), environment._service

    def counted(service: core_v1.Service) -> Iterator[tuple[str, str]]:
        for variable in real(service):
            found.append(threading.current_thread().name)
            yield variable

    monkeypatch.setattr(environment, "_service", counted)
    return found


def test_variables_of_services_are_made_up_to_the_largest_environment(made: list[str]) -> None:
    services = [service(f"s{n}", 6000) for n in range(20)]
    with pytest.raises(ContainerConfigError, match="the environment has more than 4194304 characters"):
        environment.service_variables(services)
    assert len(made) < 6000 * 20


def test_variables_of_services_count_with_the_others() -> None:
    services = {f"S{n}": "x" * 1000 for n in range(3000)}
    container = core_v1.Container(name="c", env=[core_v1.EnvVar(name=f"V{n}", value="x" * 100_000) for n in range(20)])
    with pytest.raises(ContainerConfigError, match="the environment has more than"):
        environment.environment(POD, container, EnvironmentSources(NoReferences(), services))
    same = core_v1.Container(name="c", env=[core_v1.EnvVar(name=name, value="mine") for name in services])
    assert set(environment.environment(POD, same, EnvironmentSources(NoReferences(), services)).values()) == {"mine"}


def test_short_variables_count_what_the_kernel_takes_for_each() -> None:
    many = {f"S{n}": "" for n in range(environment.LARGEST // 10)}
    with pytest.raises(ContainerConfigError):
        environment.environment(POD, CONTAINER, EnvironmentSources(NoReferences(), many))


@pytest.mark.parametrize(
    ("ports", "container", "on_loop"),
    [
        (PORTS, CONTAINER, True),
        (PORTS + 1, CONTAINER, False),
        (
            1,
            core_v1.Container(
                name="c", env_from=[core_v1.EnvFromSource(config_map_ref=core_v1.ConfigMapEnvSource(name="m"))]
            ),
            False,
        ),
        (1, core_v1.Container(name="c", env=[core_v1.EnvVar(name=f"V{n}") for n in range(VARIABLES)]), True),
        (1, core_v1.Container(name="c", env=[core_v1.EnvVar(name=f"V{n}") for n in range(VARIABLES + 1)]), False),
    ],
)
async def test_a_large_environment_is_made_beside_the_event_loop(
    ports: int, container: core_v1.Container, on_loop: bool, made: list[str]
) -> None:
    known: Any = SimpleNamespace(
        node=SimpleNamespace(host_ips=(), allocatable={}),
        services=SimpleNamespace(list=lambda: [service("web", ports)]),
        references=NoReferences(),
    )
    found = await make_environment(cast(PodDependencies, known), POD, container, (), {}, static=True)
    assert found["WEB_SERVICE_PORT_P0"] == "1" and ("K" in found) == bool(container.env_from)
    assert (set(made) == {threading.current_thread().name}) is on_loop


async def test_a_pod_whose_services_have_too_many_ports_gets_an_error() -> None:
    known: Any = SimpleNamespace(
        node=SimpleNamespace(host_ips=(), allocatable={}),
        services=SimpleNamespace(list=lambda: [service(f"s{n}", 6000) for n in range(20)]),
        references=NoReferences(),
    )
    with pytest.raises(ContainerConfigError):
        await make_environment(cast(PodDependencies, known), POD, CONTAINER, (), {}, static=True)
    without = core_v1.Pod(metadata=POD.metadata, spec=core_v1.PodSpec(containers=[], enable_service_links=False))
    assert await make_environment(cast(PodDependencies, known), without, CONTAINER, (), {}, static=True) == {}
