"""Usage of a pod if the runtime reports it for containers only."""

from agent.usage.collector import _sum_cpu, _sum_memory
from agent.usage.model import CPU, ContainerUse, Memory


def container(name: str, cpu: CPU, memory: Memory) -> ContainerUse:
    return ContainerUse(name, name, "i", 0.0, cpu, memory, 0, 0, 0, 0, 0)


def test_a_pod_uses_what_its_containers_use_together() -> None:
    found = [
        container("a", CPU(5.0, 100, 10), Memory(5.0, 1000, usage=2000, rss=500, available=1)),
        container("b", CPU(6.0, 300, None), Memory(6.0, 50, usage=60, rss=7, available=None)),
    ]
    assert _sum_cpu(found) == CPU(6.0, 400, 10)
    assert _sum_memory(found) == Memory(6.0, 1050, usage=2060, rss=507)


def test_nothing_is_said_of_a_pod_without_running_containers() -> None:
    assert _sum_cpu([]) is None
    assert _sum_memory([]) is None
