from __future__ import annotations

import base64
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from control.controllers.certificates.approver import candidates
from control.controllers.certificates.serving import doubt, requesting_node
from kube import pki
from kube.api import certificates_v1, core_v1, meta_v1

SERVER = {"10.96.0.1", "192.0.2.1", "api.example"}
SERVING, CLIENT = "kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client"
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"


def node(name: str, *addresses: str, host_name: str = "") -> core_v1.Node:
    found = [core_v1.NodeAddress(type="InternalIP", address=a) for a in addresses]
    found.append(core_v1.NodeAddress(type="Hostname", address=host_name or name))
    metadata = meta_v1.ObjectMeta(name=name, creation_timestamp="2026-03-01T00:00:00Z")
    return core_v1.Node(metadata=metadata, status=core_v1.NodeStatus(addresses=found))


def service(name: str, namespace: str, made: str, *addresses: str) -> core_v1.Service:
    metadata = meta_v1.ObjectMeta(name=name, namespace=namespace, creation_timestamp=made)
    return core_v1.Service(metadata=metadata, spec=core_v1.ServiceSpec(cluster_ips=list(addresses)))


def request(
    pem: bytes, user: str, signer: str = SERVING, usage: str = "server auth"
) -> certificates_v1.CertificateSigningRequest:
    spec = certificates_v1.CertificateSigningRequestSpec(
        request=base64.b64encode(pem).decode(),
        signer_name=signer,
        username=user,
        usages=["digital signature", usage],
    )
    return certificates_v1.CertificateSigningRequest(spec=spec)


def serving(*sans: str, name: str = "n1") -> certificates_v1.CertificateSigningRequest:
    return request(pki.kubelet_serving_request(pki.new_key(), name, sans), f"system:node:{name}")


def test_a_node_is_given_what_names_it_alone() -> None:
    csr = serving("n1", "192.0.2.11", "fd00::11")
    assert requesting_node(csr) == "n1"
    assert doubt(csr, node("n1", "192.0.2.11", "fd00::11"), [node("n2", "192.0.2.12")], SERVER) == ""


@pytest.mark.parametrize(
    ("sans", "why"),
    [
        (("n2", "192.0.2.11"), "n2 is not the node's name"),
        (("kubernetes", "192.0.2.11"), "kubernetes is not the node's name"),
        (("n1", "192.0.2.12"), "192.0.2.12 is not an address of the node"),
        (("n1", "192.0.2.13"), "192.0.2.13 is an address of another node too"),
        (("n1", "192.0.2.1"), "192.0.2.1 is an address of the API server"),
        (("n1", "10.96.0.1"), "10.96.0.1 is an address of the API server"),
        (("n1", "127.0.0.1"), "127.0.0.1 is an address of the API server"),
    ],
)
def test_a_certificate_request_of_a_node_for_more_is_not_approved_automatically(
    sans: tuple[str, ...], why: str
) -> None:
    # The node says of itself that it has all of these addresses.
    itself = node("n1", "192.0.2.11", "192.0.2.13", "192.0.2.1", "10.96.0.1", "127.0.0.1")
    assert doubt(serving(*sans), itself, [node("n2", "192.0.2.13")], SERVER) == why


@pytest.mark.parametrize("address", ["::ffff:10.96.0.1", "::ffff:192.0.2.12", "::ffff:10.96.0.7", "::ffff:192.0.2.11"])
def test_a_certificate_request_for_an_ipv4_address_inside_an_ipv6_one_is_not_approved(address: str) -> None:
    """To Go's clients, ::ffff:10.96.0.1 in a certificate is 10.96.0.1."""
    services = [service("web", "shop", "2026-04-01T00:00:00Z", "10.96.0.7")]
    found = doubt(serving("n1", address), node("n1", address), [node("n2", "192.0.2.12")], SERVER, services)
    assert found == f"{ipaddress.ip_address(address)} is an IPv4 address inside an IPv6 one"


@pytest.mark.parametrize(
    ("other", "held", "server"),
    [
        (node("n2", "::ffff:192.0.2.11"), "10.96.0.7", "10.96.0.1"),
        (node("n2", "192.0.2.12"), "::ffff:192.0.2.11", "10.96.0.1"),
        (node("n2", "192.0.2.12"), "10.96.0.7", "::ffff:192.0.2.11"),
    ],
)
def test_an_address_is_taken_however_it_is_written(other: core_v1.Node, held: str, server: str) -> None:
    services = [service("web", "shop", "2026-04-01T00:00:00Z", held)]
    assert doubt(serving("n1", "192.0.2.11"), node("n1", "192.0.2.11"), [other], {server}, services)


def test_a_node_may_write_its_own_address_in_another_form() -> None:
    assert doubt(serving("n1", "fd00::11"), node("n1", "FD00:0::11"), [], SERVER) == ""


def test_a_node_by_a_name_of_the_api_server_is_not_given_that_name() -> None:
    csr = serving("kubernetes", "192.0.2.11", name="kubernetes")
    assert doubt(csr, node("kubernetes", "192.0.2.11"), [], SERVER) == "kubernetes is a name of the API server"


def test_a_node_by_a_name_in_the_api_servers_certificate_is_not_given_that_either() -> None:
    csr = serving("api.example", name="api.example")
    assert doubt(csr, node("api.example"), [], SERVER) == "api.example is a name of the API server"


@pytest.mark.parametrize(
    ("name", "domain", "why"),
    [
        ("webhook.shop.svc", "cluster.local", "webhook.shop.svc ends in 'svc', as names of Services do"),
        ("n1.example.lan", "example.lan", "n1.example.lan is in the cluster's domain example.lan"),
        ("n1.example.lan", "cluster.local", ""),
    ],
)
def test_a_node_by_a_name_of_services_is_not_given_that_name(name: str, domain: str, why: str) -> None:
    found = doubt(serving(name, name=name), node(name), [], SERVER, cluster_domain=domain)
    assert found.startswith(why) and bool(found) is bool(why)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("2026-01-01T00:00:00Z", "web.lan is a name of Service lan/web"),
        ("2026-03-01T00:00:00Z", "web.lan is a name of Service lan/web"),
        # Whoever makes a Service later does not take a node's certificate from it.
        ("2026-04-01T00:00:00Z", ""),
    ],
)
def test_a_node_is_not_given_the_name_of_a_service_that_was_there_before(made: str, why: str) -> None:
    services = [service("web", "lan", made), service("other", "lan", made)]
    assert doubt(serving("web.lan", name="web.lan"), node("web.lan"), [], SERVER, services) == why


def test_a_node_is_not_given_the_address_of_a_service() -> None:
    csr, itself = serving("n1", "10.96.0.7"), node("n1", "10.96.0.7")
    services = [service("web", "shop", "2026-04-01T00:00:00Z", "10.96.0.7", "fd00::7")]
    assert doubt(csr, itself, [], SERVER, services) == "10.96.0.7 is an address of Service shop/web"


@pytest.mark.parametrize(
    ("balancer", "why"), [("example.com/x", "203.0.113.9 is an address of Service shop/web"), ("", "")]
)
def test_a_node_is_not_given_the_address_of_another_load_balancer(balancer: str, why: str) -> None:
    """The built-in load balancer gives Services the nodes' own addresses."""
    balanced = service("web", "shop", "2026-04-01T00:00:00Z", "10.96.0.7")
    balanced.spec.load_balancer_class = balancer
    points = [core_v1.LoadBalancerIngress(ip="203.0.113.9")]
    balanced.status.load_balancer = core_v1.LoadBalancerStatus(ingress=points)
    csr, itself = serving("n1", "203.0.113.9"), node("n1", "203.0.113.9")
    assert doubt(csr, itself, [], SERVER, [balanced]) == why


def test_a_name_must_be_among_the_nodes_addresses() -> None:
    assert doubt(serving("n1"), node("n1", host_name="other"), [], SERVER) == "n1 is not a host name of the node"
    dns = core_v1.NodeAddress(type="InternalDNS", address="n1")
    itself = node("n1", host_name="other")
    itself.status.addresses.append(dns)
    assert doubt(serving("n1"), itself, [], SERVER) == ""


def test_a_request_before_its_node_is_there_is_looked_at_again() -> None:
    assert doubt(serving("n1"), None, [], SERVER) == "there is no such Node"


def test_nobody_may_request_another_nodes_certificate() -> None:
    pem = pki.kubelet_serving_request(pki.new_key(), "n1", ("n1",))
    assert requesting_node(request(pem, "system:node:n2")) == ""
    assert requesting_node(request(pem, "system:node:n1", CLIENT)) == ""
    assert requesting_node(request(pem, "system:node:n1", usage="client auth")) == ""
    assert requesting_node(request(b"nothing", "system:node:n1")) == ""


@pytest.mark.parametrize(
    ("name", "groups", "sans", "user", "requested"),
    [
        ("system:kube-proxy", (), (), "system:bootstrap:abcdef", ["proxyclient"]),
        ("system:kube-proxy", (), (), "system:kube-proxy", ["selfproxyclient"]),
        ("system:kube-proxy", ("system:masters",), (), "system:bootstrap:abcdef", []),
        ("system:kube-proxy", (), ("n1",), "system:bootstrap:abcdef", []),
        ("system:kube-scheduler", (), (), "system:bootstrap:abcdef", []),
        ("jane", (), (), "jane", []),
    ],
)
def test_of_client_certificates_only_the_proxys_own_is_approved(
    name: str, groups: tuple[str, ...], sans: tuple[str, ...], user: str, requested: list[str]
) -> None:
    csr = request(pki.new_request(pki.new_key(), name, groups, sans), user, CLIENT, "client auth")
    assert [subresource for subresource, _ in candidates(csr)] == requested


@pytest.mark.parametrize(
    ("user", "requested"),
    [
        ("system:bootstrap:abcdef", ["nodeclient"]),
        ("system:node:n1", ["selfnodeclient", "nodeclient"]),
        ("system:node:n2", ["nodeclient"]),
    ],
)
def test_a_nodes_client_certificate_takes_another_permission_for_its_own(user: str, requested: list[str]) -> None:
    csr = request(pki.kubelet_client_request(pki.new_key(), "n1"), user, NODE_CLIENT, "client auth")
    assert [subresource for subresource, _ in candidates(csr)] == requested


@pytest.mark.parametrize("name", ["webhook.shop.svc", "n1.cluster.local", "kubernetes", "no_name"])
def test_nobody_joins_by_a_name_of_services(name: str) -> None:
    csr = request(
        pki.kubelet_client_request(pki.new_key(), name), "system:bootstrap:abcdef", NODE_CLIENT, "client auth"
    )
    assert candidates(csr) == []
    # Who has such a name already keeps it: an upgrade takes no node down.
    csr = request(pki.kubelet_client_request(pki.new_key(), name), f"system:node:{name}", NODE_CLIENT, "client auth")
    assert [subresource for subresource, _ in candidates(csr)] == ["selfnodeclient"]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("2026-01-01T00:00:00Z", "worker1.corp.example is a host name of node worker1"),
        ("2026-03-01T00:00:00Z", "worker1.corp.example is a host name of node worker1"),
        # Whoever adds a node later does not take a node's certificate from it.
        ("2026-04-01T00:00:00Z", ""),
    ],
)
@pytest.mark.parametrize("kind", ["Hostname", "InternalDNS", "ExternalDNS"])
def test_a_node_is_not_given_the_host_name_of_a_node_that_was_there_before(kind: str, made: str, why: str) -> None:
    name = "worker1.corp.example"
    other = node("worker1", "192.0.2.12")
    other.metadata.creation_timestamp = made
    other.status.addresses.append(core_v1.NodeAddress(type=kind, address=name))
    assert doubt(serving(name, name=name), node(name), [other], SERVER) == why


def test_a_request_with_very_many_names_is_not_read() -> None:
    many = [f"192.0.{number // 250}.{number % 250}" for number in range(65)]
    assert doubt(serving(*many), node("n1", *many), [], SERVER) == "it has more than 64 names and addresses"
    csr = serving(*(f"n{number}.example" for number in range(2_000)))
    assert requesting_node(csr) == "" and candidates(csr) == []


def test_of_a_node_with_very_many_addresses_only_the_first_count() -> None:
    itself = node("n1", *(f"10.0.{number // 250}.{number % 250}" for number in range(100)))
    assert doubt(serving("10.0.0.63"), itself, [], SERVER) == ""
    assert doubt(serving("10.0.0.64"), itself, [], SERVER) == "10.0.0.64 is not an address of the node"


@pytest.mark.parametrize(
    ("name", "why"),
    [("192.0.2.11", ""), ("10.96.0.1", "10.96.0.1 is a name of the API server"), ("10.96.0.7", "of Service shop/web")],
)
def test_a_node_whose_name_is_an_address_is_not_given_the_address_of_others(name: str, why: str) -> None:
    services = [service("web", "shop", "2026-04-01T00:00:00Z", "10.96.0.7")]
    itself = node(name, name)
    key = pki.new_key()
    named = x509.SubjectAlternativeName([x509.DNSName(name)])
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject).add_extension(named, critical=False)
    csr = request(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), f"system:node:{name}")
    assert requesting_node(csr) == name
    assert doubt(csr, itself, [], SERVER, services).endswith(why)
    assert bool(doubt(csr, itself, [], SERVER, services)) is bool(why)
