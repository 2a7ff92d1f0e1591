"""Services of thousands of ports and source ranges: work grows with their sum, not with their product."""

from collections.abc import Iterator

from kube.api import discovery_v1
from netproxy.model import plan_service
from tests.support.services import port, service, slice_of


class CountedPorts(list[discovery_v1.EndpointPort]):
    """Ports that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[discovery_v1.EndpointPort]:
        self.reads += 1
        return super().__iter__()


def test_the_ports_of_a_service_share_its_source_ranges() -> None:
    ports = [port("a", 80), port("b", 81)]
    ranges = ["10.0.0.0/8", " 192.0.2.0/24", "fd00::/8"]
    balanced = service("web", "10.96.5.1", *ports, type="LoadBalancer", load_balancer_source_ranges=ranges)
    first, second = plan_service(balanced, [])
    assert first.source_ranges == ("10.0.0.0/8", "192.0.2.0/24")
    assert first.source_ranges is second.source_ranges


def test_the_ports_of_a_slice_are_read_once_for_all_ports_of_a_service() -> None:
    numbers = {f"p{number}": number for number in range(1, 51)}
    slice_ = slice_of("web", "10.244.1.2", ports=numbers)
    slice_.ports = counted = CountedPorts(slice_.ports)
    planned = plan_service(service("web", "10.96.5.1", *(port(*each) for each in numbers.items())), [slice_])
    assert [each.endpoints[0].port for each in planned] == list(numbers.values())
    assert counted.reads == 1
