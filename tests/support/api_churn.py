"""Random changes of all that the network role follows, the same for each seed: Services, slices, policies, pods, labels."""

import random
from typing import Any

import msgspec

from kube.object_names import key_of
from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.support.memory_api import MemoryAPI
from tests.support.policies import pod, random_policy
from tests.support.services import endpoint, node, port, service, slice_of

SERVICES, PODS, POLICIES = 40, 30, 8


class APIChurn:
    """Changes an API's objects by chance; `put` and `remove` keep what there is, so that another API can be given the same."""

    def __init__(self, api: MemoryAPI, seed: int, objects: dict[tuple[str, str], msgspec.Struct] | None = None) -> None:
        self.api, self._chance = api, random.Random(seed)
        self.objects: dict[tuple[str, str], msgspec.Struct] = {}
        for each in (objects or {}).values():
            self.put(each)
        self.steps = 0

    def put(self, obj: msgspec.Struct) -> None:
        self.objects[type(obj).__name__, key_of(obj)] = obj
        self.api.put(obj)

    def remove(self, kind: str, key: str) -> None:
        obj = self.objects.pop((kind, key), None)
        if obj is not None:
            self.api.remove(obj)

    def step(self) -> None:
        """Make one change."""
        self.steps += 1
        number = self._chance.randrange(SERVICES)
        match self._chance.randrange(12):
            case 0:
                self.remove("Service", f"default/s{number}")
            case 1 | 2:
                self.put(self._service(number))
            case 3:
                self.remove("EndpointSlice", f"default/s{number}-{self._chance.choice('abv')}")
            case 4 | 5 | 6 | 7:
                self.put(self._slice(number, self._chance.choice("abv")))
            case 8:
                self._pod(number % PODS)
            case 9:
                self._policy(number % POLICIES)
            case 10:
                name = self._chance.choice(["default", "other"])
                self.put(SlimNamespace(SlimMeta(name=name, labels={"team": self._chance.choice("ab")})))
            case 11 if self._chance.random() < 0.1:  # touches every Service
                self.put(node("node-1", "10.244.1.0/24", "192.168.77.1", zone=self._chance.choice(["east", "west"])))

    def _service(self, number: int) -> Any:
        chance = self._chance
        four, six = f"10.96.5.{number + 1}", f"fd00:96::{number + 1:x}"
        ips = chance.choice([[four], [four, six], [six, four], [six]])
        protocol = chance.choice(["TCP", "TCP", "UDP", "SCTP"])
        kind = chance.choice(["ClusterIP", "NodePort", "LoadBalancer"])
        local = chance.choice(["Local", "Cluster"])
        return service(
            f"s{number}",
            ips[0],
            port("http", 80, protocol, node_port=30000 + number),
            port("other", 81, protocol, node_port=30100 + number),
            ips=ips,
            type=kind,
            ingress=(f"198.51.100.{number + 1}", f"2001:db8:5::{number + 1:x}") if kind == "LoadBalancer" else (),
            external_ips=[f"192.0.2.{number + 1}"] if chance.random() < 0.2 else [],
            external_traffic_policy=local,
            internal_traffic_policy=chance.choice(["Local", "Cluster", "Cluster"]),
            health_check_node_port=31000 + number if kind == "LoadBalancer" and local == "Local" else None,
            session_affinity=chance.choice(["None", "None", "ClientIP"]),
            load_balancer_source_ranges=chance.choice([[], ["203.0.113.0/24", "2001:db8:1::/48"]]),
        )

    def _slice(self, number: int, suffix: str) -> Any:
        chance, six = self._chance, suffix == "v"
        endpoints = [
            endpoint(
                f"fd00:244:{part}::{ip:x}" if six else f"10.244.{part}.{ip}",
                node=f"node-{part}",
                ready=chance.random() < 0.8,
                serving=chance.choice([None, True, False]),
                terminating=chance.random() < 0.2,
                zones=chance.choice([(), ("east",), ("west",)]),
            )
            for part in (1, 2)
            for ip in chance.sample(range(2, 30), chance.randrange(5))
        ]
        owner: Any = self.objects.get(("Service", f"default/s{number}"))
        return slice_of(
            f"s{number}",
            *endpoints,
            ports={"http": 8080, "other": 8081 + chance.randrange(2)},
            protocol=owner.spec.ports[0].protocol if owner else "TCP",
            suffix=suffix,
            address_type="IPv6" if six else "IPv4",
        )

    def _pod(self, number: int) -> None:
        chance, name = self._chance, f"pod{number}"
        if chance.random() < 0.3:
            self.remove("SlimPod", f"default/{name}")
            return
        part = 1 + number % 2
        ips = (f"10.244.{part}.{50 + number}", f"fd00:244:{part}::{50 + number:x}") if chance.random() < 0.8 else ()
        ports = {"http": ("TCP", 8000 + chance.randrange(3))}
        labels = {"app": chance.choice(["web", "db"])}
        self.put(
            pod(name, *ips, node=f"node-{part}", labels=labels, ports=ports, phase=chance.choice(["Running", "Failed"]))
        )

    def _policy(self, number: int) -> None:
        for namespace in ("default", "other"):
            self.remove("NetworkPolicy", f"{namespace}/p{number}")
        if self._chance.random() < 0.7:
            self.put(random_policy(number, self._chance))
