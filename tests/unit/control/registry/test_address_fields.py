"""IP addresses and CIDRs in all fields of all kinds: accepted forms, what an update may keep, warnings (KEP-4858)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import (
    container,
    created,
    pod,
    problems,
    service,
    strategy_of,
    update_problems,
    workload,
)

ZEROS, MAPPED = "must not have leading 0s", "must not be an IPv4-mapped IPv6 address"
NOT_AN_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
ADDRESSES = {
    "010.0.0.1": ZEROS,
    "::ffff:1.2.3.04": ZEROS,
    "::ffff:10.0.0.1": MAPPED,
    "::ffff:a00:1": MAPPED,
    "10.0.0.256": NOT_AN_IP,
    "fe80::1%eth0": NOT_AN_IP,
    "10.0.0": NOT_AN_IP,
}
RANGES = {
    "10.0.0.1/8": "must not have bits set beyond the prefix length",
    "fd00::1/64": "must not have bits set beyond the prefix length",
    "010.0.0.0/8": "must not have leading 0s in IP or prefix length",
    "10.0.0.0/08": "must not have leading 0s in IP or prefix length",
    "::ffff:10.0.0.0/104": "must not have an IPv4-mapped IPv6 address",
    "10.0.0.0/255.0.0.0": NOT_A_CIDR,
    "10.0.0.0/33": NOT_A_CIDR,
    "10.0.0.0": NOT_A_CIDR,
    "fd00::%x/64": NOT_A_CIDR,
}


def obj(api_version: str, kind: str, **parts: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, **parts}


@dataclass(frozen=True)
class Place:
    """A field: an object with values in it, its path, what is valid in it, and what an update may keep."""

    made: Callable[..., Object]
    path: str
    checked: dict[str, str]
    keeps: bool = False
    subresource: str = ""
    warned: str | None = ""
    """The path that warnings have, if it is another; None if there are none."""


def load_balancer(*ranges: str) -> Object:
    return service(
        type="LoadBalancer",
        clusterIP="10.96.0.9",
        clusterIPs=["10.96.0.9"],
        ipFamilyPolicy="SingleStack",
        loadBalancerSourceRanges=list(ranges),
    )


def service_of(*addresses: str) -> Object:
    return service(clusterIP=addresses[0], clusterIPs=list(addresses), ipFamilyPolicy="SingleStack")


def outside(*addresses: str) -> Object:
    return service(
        clusterIP="10.96.0.9", clusterIPs=["10.96.0.9"], ipFamilyPolicy="SingleStack", externalIPs=list(addresses)
    )


def annotated(*ranges: str) -> Object:
    found = service(type="LoadBalancer", clusterIP="10.96.0.9", clusterIPs=["10.96.0.9"], ipFamilyPolicy="SingleStack")
    found["metadata"]["annotations"] = {"service.beta.kubernetes.io/load-balancer-source-ranges": ",".join(ranges)}
    return found


def balanced(*addresses: str) -> Object:
    found = load_balancer()
    found["status"] = {"loadBalancer": {"ingress": [{"ip": each, "ipMode": "VIP"} for each in addresses]}}
    return found


def ingress(*addresses: str) -> Object:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    status = {"loadBalancer": {"ingress": [{"ip": each} for each in addresses]}}
    return obj("networking.k8s.io/v1", "Ingress", spec={"defaultBackend": backend}, status=status)


def policy(direction: str, peers: str) -> Callable[..., Object]:
    def made(*ranges: str) -> Object:
        spec = {"podSelector": {}, direction: [{peers: [{"ipBlock": {"cidr": each}} for each in ranges]}]}
        return obj("networking.k8s.io/v1", "NetworkPolicy", spec=spec)

    return made


def pod_status(field: str) -> Callable[..., Object]:
    def made(*addresses: str) -> Object:
        found = created(pod(nodeName="n"))
        found["status"][field] = [{"ip": each} for each in addresses]
        if field == "hostIPs" and addresses:
            found["status"]["hostIP"] = addresses[0]
        return found

    return made


def template(**spec: Any) -> Object:
    return workload(
        "Deployment", template={"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container()], **spec}}
    )


def endpoint_slice(family: str) -> Callable[..., Object]:
    def made(*addresses: str) -> Object:
        return obj(
            "discovery.k8s.io/v1", "EndpointSlice", addressType=family, endpoints=[{"addresses": list(addresses)}]
        )

    return made


def aliases(*addresses: str) -> list[Object]:
    return [{"ip": each, "hostnames": ["a"]} for each in addresses]


def subsets(key: str) -> Callable[..., Object]:
    def made(*addresses: str) -> Object:
        found = [{key: [{"ip": each} for each in addresses], "ports": [{"port": 80}]}]
        return obj("v1", "Endpoints", subsets=found)

    return made


ANNOTATION = "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]"
POINTS = "status.loadBalancer.ingress"
PLACES = {
    "cluster addresses": Place(service_of, "spec.clusterIPs[0]", ADDRESSES, keeps=True),
    "external addresses": Place(outside, "spec.externalIPs[0]", ADDRESSES, keeps=True),
    "source ranges": Place(
        load_balancer, "spec.LoadBalancerSourceRanges[0]", RANGES, keeps=True, warned="spec.loadBalancerSourceRanges[0]"
    ),
    "source ranges in an annotation": Place(annotated, ANNOTATION, RANGES, keeps=True, warned=None),
    "load balancer of a Service": Place(balanced, f"{POINTS}[0].ip", ADDRESSES, True, "status", f"{POINTS}[0]"),
    "load balancer of an Ingress": Place(ingress, f"{POINTS}[0].ip", ADDRESSES, True, "status", f"{POINTS}[0]"),
    "ingress of a policy": Place(policy("ingress", "from"), "spec.ingress[0].from[0].ipBlock.cidr", RANGES, keeps=True),
    "egress of a policy": Place(policy("egress", "to"), "spec.egress[0].to[0].ipBlock.cidr", RANGES, keeps=True),
    "pod addresses": Place(pod_status("podIPs"), "status.podIPs[0]", ADDRESSES, True, "status", "status.podIPs[0].ip"),
    "host addresses": Place(
        pod_status("hostIPs"), "status.hostIPs[0]", ADDRESSES, True, "status", "status.hostIPs[0].ip"
    ),
    "name servers of a pod": Place(
        lambda *found: pod(dnsConfig={"nameservers": list(found)}), "spec.dnsConfig.nameservers[0]", ADDRESSES
    ),
    "host aliases of a pod": Place(
        lambda *found: pod(hostAliases=aliases(*found)), "spec.hostAliases[0].ip", ADDRESSES
    ),
    "name servers of a template": Place(
        lambda *found: template(dnsConfig={"nameservers": list(found)}),
        "spec.template.spec.dnsConfig.nameservers[0]",
        ADDRESSES,
    ),
    "host aliases of a template": Place(
        lambda *found: template(hostAliases=aliases(*found)), "spec.template.spec.hostAliases[0].ip", ADDRESSES
    ),
    "name servers of a PodTemplate": Place(
        lambda *found: obj(
            "v1",
            "PodTemplate",
            template={"metadata": {}, "spec": {"containers": [container()], "dnsConfig": {"nameservers": list(found)}}},
        ),
        "template.spec.dnsConfig.nameservers[0]",
        ADDRESSES,
    ),
    "pod ranges": Place(lambda *found: obj("v1", "Node", spec={"podCIDRs": list(found)}), "spec.podCIDRs[0]", RANGES),
    "endpoints": Place(subsets("addresses"), "subsets[0].addresses[0].ip", ADDRESSES, keeps=True),
    "endpoints that are not ready": Place(
        subsets("notReadyAddresses"), "subsets[0].notReadyAddresses[0].ip", ADDRESSES, keeps=True
    ),
    "a slice": Place(endpoint_slice("IPv4"), "endpoints[0].addresses[0]", ADDRESSES, keeps=True),
    "an IPv6 slice": Place(endpoint_slice("IPv6"), "endpoints[0].addresses[0]", ADDRESSES, keeps=True),
    "a ServiceCIDR": Place(
        lambda *found: obj("networking.k8s.io/v1", "ServiceCIDR", spec={"cidrs": list(found)}),
        "spec.cidrs[0]",
        RANGES,
        keeps=True,
        warned=None,
    ),
}
WRONG = [(name, value) for name, place in PLACES.items() for value in place.checked]


def shown(path: str, value: str, message: str) -> str:
    return f'{path}: Invalid value: "{value}": {message}'


def stored(place: Place, *values: str) -> Object:
    """Return an object as an older server stored it."""
    found = place.made(*values)
    return found if place.subresource else created(found)


def refusals(place: Place, found: Object) -> list[str]:
    if place.subresource:
        return update_problems(stored(place), found, place.subresource)
    return problems(found)


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{n}: {v}" for n, v in WRONG])
def test_an_ambiguous_value_is_rejected(name: str, value: str) -> None:
    place = PLACES[name]
    assert shown(place.path, value, place.checked[value]) in refusals(place, place.made(value))


@pytest.mark.parametrize("name", PLACES)
def test_a_valid_value_is_accepted(name: str) -> None:
    place = PLACES[name]
    v6 = name == "an IPv6 slice"
    values = ["10.0.0.0/8", "fd00::/8"] if place.checked is RANGES else ["2001:db8::1"] if v6 else ["10.0.0.1"]
    for value in values:
        assert refusals(place, place.made(value)) == []


@pytest.mark.parametrize("name", PLACES)
def test_an_update_may_keep_a_stored_value(name: str) -> None:
    place = PLACES[name]
    for value, message in place.checked.items():
        if message in (NOT_AN_IP, NOT_A_CIDR) or (name == "an IPv6 slice" and "." not in value):
            continue
        old = stored(place, value)
        found = copy.deepcopy(old)
        found["metadata"].setdefault("labels", {})["changed"] = "yes"
        refused = [text for text in update_problems(old, found, place.subresource) if message in text]
        assert (refused == []) == place.keeps, refused


KEEPERS = [name for name, place in PLACES.items() if place.keeps]


@pytest.mark.parametrize("name", KEEPERS)
def test_an_update_may_not_add_another_ambiguous_value(name: str) -> None:
    place = PLACES[name]
    first, second = ("010.0.0.1", "010.0.0.2") if place.checked is ADDRESSES else ("10.0.0.1/8", "10.0.0.2/8")
    message = place.checked[first]
    found = update_problems(stored(place, first), place.made(second, first), place.subresource)
    if name == "a ServiceCIDR":
        message = "field is immutable"
    assert [text for text in found if text.endswith(message) and f'"{second}"' in text]


@pytest.mark.parametrize(
    "name",
    [
        "external addresses",
        "source ranges",
        "load balancer of a Service",
        "load balancer of an Ingress",
        "ingress of a policy",
        "egress of a policy",
    ],
)
def test_a_kept_value_may_move(name: str) -> None:
    place = PLACES[name]
    first, second = ("010.0.0.1", "10.0.0.2") if place.checked is ADDRESSES else ("10.0.0.1/8", "10.0.0.0/8")
    assert update_problems(stored(place, first), place.made(second, first), place.subresource) == []


def warnings(place: Place, found: Object) -> list[str]:
    strategy = strategy_of(found)
    if place.subresource:
        return strategy.subresource_warnings(place.subresource, found, found)
    return strategy.warnings(created(found), None)


@pytest.mark.parametrize("name", PLACES)
def test_a_value_in_another_form_than_the_canonical_one_is_warned_of(name: str) -> None:
    place = PLACES[name]
    path = place.warned if place.warned is None else place.warned or place.path
    value, canonical = ("FD00::0/64", "fd00::/64") if place.checked is RANGES else ("2001:DB8::0:1", "2001:db8::1")
    kind = "IPv6 CIDR value" if place.checked is RANGES else "IPv6 address"
    text = f'{path}: {kind} "{value}" should be in RFC 5952 canonical format ("{canonical}")'
    found = [each for each in warnings(place, place.made(value)) if "RFC 5952" in each]
    assert found == ([] if path is None else [text])
    plain = "10.0.0.0/8" if place.checked is RANGES else "10.0.0.1"
    assert not any(plain in each for each in warnings(place, place.made(plain)))


@pytest.mark.parametrize("name", PLACES)
def test_a_kept_value_is_warned_of(name: str) -> None:
    place = PLACES[name]
    path = place.warned if place.warned is None else place.warned or place.path
    if path is None:
        return
    if place.checked is ADDRESSES:
        zeros, mapped = warnings(place, place.made("010.0.0.1")), warnings(place, place.made("::ffff:10.0.0.1"))
        assert f'{path}: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"' in zeros
        assert f'{path}: non-standard IP address "::ffff:10.0.0.1" is invalid: use "10.0.0.1"' in mapped
        return
    ambiguous, mapped = warnings(place, place.made("10.0.0.1/08")), warnings(place, place.made("::ffff:10.0.0.0/104"))
    assert [each for each in ambiguous if each.startswith(f"{path}:")] == [
        f'{path}: CIDR value "10.0.0.1/08" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)',
        f'{path}: non-standard CIDR value "10.0.0.1/08" is invalid: use "10.0.0.0/8"',
    ]
    assert f'{path}: non-standard CIDR value "::ffff:10.0.0.0/104" is invalid: use "10.0.0.0/8"' in mapped


def test_exceptions_of_a_block_are_checked_and_kept_too() -> None:
    def made(text: str) -> Object:
        return obj(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            spec={"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": [text]}}]}]},
        )

    path = "spec.egress[0].to[0].ipBlock.except[0]"
    assert problems(made("10.0.0.1/24")) == [shown(path, "10.0.0.1/24", RANGES["10.0.0.1/8"])]
    assert update_problems(created(made("10.0.0.1/24")), made("10.0.0.1/24")) == []
    subset = "must be a strict subset of `cidr`"
    assert problems(made("011.0.0.0/24")) == [
        shown(path, "011.0.0.0/24", RANGES["010.0.0.0/8"]),
        shown(path, "011.0.0.0/24", subset),
    ]
    assert update_problems(created(made("011.0.0.0/24")), made("011.0.0.0/24")) == [shown(path, "011.0.0.0/24", subset)]
    assert strategy_of(made("")).warnings(made("10.0.0.1/24"), None) == [
        f'{path}: CIDR value "10.0.0.1/24" is ambiguous in this context (should be "10.0.0.0/24" or "10.0.0.1/32"?)'
    ]


def test_source_ranges_may_have_spaces_around_them() -> None:
    assert problems(load_balancer(" 10.0.0.0/8 ")) == []
    assert update_problems(created(load_balancer(" 10.0.0.1/8")), load_balancer("10.0.0.1/8 ")) == []
    assert not [text for text in strategy_of(service()).warnings(load_balancer(" 10.0.0.1/8"), None) if "CIDR" in text]


def test_an_external_address_that_is_kept_must_still_be_no_special_one() -> None:
    found = created(outside("0127.0.0.1"))
    text = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    assert update_problems(found, copy.deepcopy(found)) == [shown("spec.externalIPs[0]", "0127.0.0.1", text)]


@pytest.mark.parametrize(
    ("family", "address", "expected"),
    [
        ("IPv4", "2001:db8::1", ['endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address']),
        ("IPv6", "10.0.0.1", ['endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address']),
        (
            "IPv6",
            "2001:DB8::1",
            [shown("endpoints[0].addresses[0]", "2001:DB8::1", 'must be in canonical form ("2001:db8::1")')],
        ),
        (
            "FQDN",
            "a",
            [
                shown(
                    "endpoints[0].addresses[0]", "a", "should be a domain with at least two segments separated by dots"
                )
            ],
        ),
        ("FQDN", "a.example.", []),
        ("FQDN", "", ["endpoints[0].addresses[0]: Required value"]),
    ],
)
def test_addresses_of_a_slice_are_of_its_type(family: str, address: str, expected: list[str]) -> None:
    assert problems(endpoint_slice(family)(address)) == expected


def test_other_changes_of_endpoints_that_keep_an_ambiguous_address_are_rejected() -> None:
    old, new = subsets("addresses")("010.0.0.1"), subsets("addresses")("010.0.0.1", "10.0.0.2")
    assert update_problems(created(old), new) == [shown("subsets[0].addresses[0].ip", "010.0.0.1", ZEROS)]


@pytest.mark.parametrize("label", ["endpoint-controller", "other"])
def test_endpoints_of_controllers_are_not_searched_for_warnings(label: str) -> None:
    found = subsets("addresses")("2001:DB8::1")
    found["metadata"]["labels"] = {"endpoints.kubernetes.io/managed-by": label}
    assert bool(strategy_of(found).warnings(found, None)) == (label == "other")
    slices = {"endpoint-controller": "endpointslice-controller.k8s.io"}
    sliced = endpoint_slice("IPv4")("010.0.0.1")
    sliced["metadata"]["labels"] = {"endpointslice.kubernetes.io/managed-by": slices.get(label, label)}
    assert bool(strategy_of(sliced).warnings(sliced, None)) == (label == "other")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("2001:DB8::1", 'must be in canonical form ("2001:db8::1")'),
        ("010.0.0.1", ZEROS),
        ("::ffff:10.0.0.1", MAPPED),
        ("x", NOT_AN_IP),
        ("10.0.0.1", ""),
    ],
)
def test_an_ipaddress_is_named_by_the_canonical_form(name: str, expected: str) -> None:
    found = obj("networking.k8s.io/v1", "IPAddress")
    assert strategy_of(found).name_errors(name) == ([expected] if expected else [])


def cidrs(*ranges: str) -> Object:
    return obj("networking.k8s.io/v1", "ServiceCIDR", spec={"cidrs": list(ranges)})


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (("FD00::/112",), [shown("spec.cidrs[0]", "FD00::/112", 'must be in canonical form ("fd00::/112")')]),
        (
            ("10.0.0.0/24", "10.1.0.0/24"),
            [
                'spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one IP for each IP '
                "family, i.e 192.168.0.0/24 and 2001:db8::/64"
            ],
        ),
        (
            ("10.0.0.0/24", "10.1.0.0/24", "fd00::/112"),
            [
                'spec.cidrs: Invalid value: {"CIDRs":["10.0.0.0/24","10.1.0.0/24","fd00::/112"]}: may only hold up to 2 '
                "values"
            ],
        ),
        ((), ["spec.cidrs: Required value: at least one CIDR required"]),
    ],
)
def test_ranges_of_services(ranges: tuple[str, ...], expected: list[str]) -> None:
    assert problems(cidrs(*ranges)) == expected


def test_ranges_of_services_are_immutable_but_for_a_second_family() -> None:
    old = created(cidrs("10.0.0.0/24"))
    assert update_problems(old, cidrs("10.0.0.0/24", "fd00::/112")) == []
    assert update_problems(old, cidrs("10.1.0.0/24")) == [shown("spec.cidrs[0]", "10.1.0.0/24", "field is immutable")]
    assert update_problems(old, cidrs("10.0.0.0/24", "fd00::1/112")) == [
        shown("spec.cidrs[1]", "fd00::1/112", RANGES["fd00::1/64"])
    ]
    assert update_problems(old, cidrs("10.1.0.0/24", "fd00::/112")) == [
        shown("spec.cidrs[0]", "10.1.0.0/24", "field is immutable")
    ]
    assert update_problems(old, cidrs()) == ["spec.cidrs: Invalid value: []: field is immutable"]


def test_addresses_of_devices_have_a_prefix_length_and_their_canonical_form() -> None:
    device = {"driver": "d.example.com", "pool": "p", "device": "e"}
    claim = obj(
        "resource.k8s.io/v1",
        "ResourceClaim",
        spec={
            "devices": {
                "requests": [
                    {"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}
                ]
            }
        },
    )
    old = created(claim)
    old["status"] = {"allocation": {"devices": {"results": [{"request": "r", **device}]}}}
    new = copy.deepcopy(old)
    given = ["192.0.2.5/24", "192.0.2.5", "192.0.02.5/24", "::ffff:192.0.2.5/120", "2001:DB8::1/64", "192.0.2.5/24"]
    new["status"]["devices"] = [
        {**device, "networkData": {"ips": given, "interfaceName": "x" * 257, "hardwareAddress": "y" * 129}}
    ]
    where = "status.devices[0].networkData"
    canonical = 'must be in canonical form ("192.0.2.5/24")'
    assert update_problems(old, new, "status") == [
        f"{where}.interfaceName: Too long: may not be more than 256 bytes",
        f"{where}.hardwareAddress: Too long: may not be more than 128 bytes",
        shown(
            f"{where}.ips[1]", "192.0.2.5", "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        ),
        shown(f"{where}.ips[2]", "192.0.02.5/24", canonical),
        shown(f"{where}.ips[3]", "::ffff:192.0.2.5/120", canonical),
        shown(f"{where}.ips[4]", "2001:DB8::1/64", 'must be in canonical form ("2001:db8::1/64")'),
        f'{where}.ips[5]: Duplicate value: "192.0.2.5/24"',
    ]


def test_an_ingress_has_no_address_as_host() -> None:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    for host in ("10.0.0.1", "010.0.0.1"):
        rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
        found = obj("networking.k8s.io/v1", "Ingress", spec={"rules": [rule]})
        text = "must be a DNS name, not an IP address"
        assert problems(found) == [shown("spec.rules[0].host", host, text)]
