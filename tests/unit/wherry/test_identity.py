"""Options that a machine with a cluster cannot change: refused with what the cluster has, before anything stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from kube import kubeconfig, pki
from kube.clock import SYSTEM
from wherry import config_file, identity, wanted
from wherry.command_options import options_of
from wherry.errors import WherryError
from wherry.identity import Identity
from wherry.main import app
from wherry.option_checks import complete
from wherry.settings import Settings
from wherry.up_command import up

UP = options_of(up)
ETCD = {"store": "etcd", "etcd_servers": "http://127.0.0.1:2379"}


def cluster(folder: Path, **options: Any) -> Settings:
    return complete(Settings(prefix=str(folder), node_name="node1", **options), "192.0.2.10")


def changed(before: Settings, unset: tuple[str, ...] = (), found: Identity | None = None, **options: Any) -> None:
    """Check what `wherry up` with options wants."""
    no_file = config_file.read(Path(before.prefix, "none"), UP)
    full = complete(wanted.merge(before, no_file, options, UP, unset), "192.0.2.10")
    identity.check(before, full, found or identity.saved(before))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_name": "other"}, "--node-name other: this machine is node node1: .*`wherry reset`"),
        ({"service_cidr": "10.112.0.0/16"}, "--service-cidr 10.112.0.0/16: this cluster has 10.96.0.0/12"),
        ({"pod_cidr": "10.50.0.0/16"}, "--pod-cidr 10.50.0.0/16: this cluster has 10.244.0.0/16"),
        ({"cluster_domain": "foo.local"}, "--cluster-domain foo.local: this cluster has cluster.local"),
        ({"cluster_dns": "10.97.0.10"}, "--cluster-dns 10.97.0.10: running pods ask 10.96.0.10"),
        ({"cluster_dns": "10.192.0.10"}, "--cluster-dns 10.192.0.10: it lies outside"),
        ({"node_ip": "fd99::1"}, "--node-ip fd99::1: .* must have the family"),
        (
            {"pod_cidr": "10.244.0.0/16,fd00:244::/56", "service_cidr": "10.96.0.0/12,fd00:96::/112"},
            "--service-cidr 10.96.0.0/12,fd00:96::/112: this cluster has 10.96.0.0/12",
        ),
    ],
)
def test_what_identifies_a_cluster_is_refused_with_what_it_has(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(WherryError, match=message):
        changed(cluster(tmp_path), **options)


@pytest.mark.parametrize(
    ("option", "value"),
    [("service_cidr", "10.112.0.0/16"), ("pod_cidr", "10.50.0.0/16"), ("cluster_domain", "foo.local")],
)
def test_its_default_is_another_value_too(tmp_path: Path, option: str, value: str) -> None:
    name = option.replace("_", "-")
    with pytest.raises(WherryError, match=f"--{name} .*: this cluster has {value}"):
        changed(cluster(tmp_path, **{option: value}), (name,))


def test_the_keys_of_a_cluster_in_etcd_keep_their_prefix(tmp_path: Path) -> None:
    before = cluster(tmp_path, **ETCD)
    with pytest.raises(WherryError, match="--etcd-prefix /other: the keys of this cluster begin with /registry"):
        changed(before, etcd_prefix="/other")
    changed(before, etcd_servers="http://127.0.0.1:2379,http://127.0.0.2:2379")


@pytest.mark.parametrize(
    "options",
    [
        {"node_name": "node1", "service_cidr": "10.96.0.0/12", "pod_cidr": "10.244.0.0/16"},
        {"api_port": 7443, "max_pods": 50, "proxy_mode": "nftables", "node_ip": "192.0.2.11"},
        {"cluster_dns": "none"},
        {"cluster_dns": "10.97.0.10", "dns": "none"},
        {"pod_network": "none", "pod_cidr": "192.168.0.0/16"},
    ],
)
def test_other_options_may_change(tmp_path: Path, options: dict[str, Any]) -> None:
    changed(cluster(tmp_path), **options)


def test_cluster_dns_may_get_a_second_family_and_another_address_after_none(tmp_path: Path) -> None:
    both = cluster(
        tmp_path,
        pod_cidr="10.244.0.0/16,fd00:244::/56",
        service_cidr="10.96.0.0/12,fd00:96::/112",
        cluster_dns="10.96.0.10",
    )
    changed(both, cluster_dns="10.96.0.10,fd00:96::a")
    changed(cluster(tmp_path, cluster_dns="none"), cluster_dns="10.97.0.10")


def test_an_option_that_was_saved_by_mistake_can_be_taken_back(tmp_path: Path) -> None:
    before = cluster(tmp_path, service_cidr="10.112.0.0/16", pod_cidr="10.50.0.0/16")
    found = Identity("node1", "10.96.0.0/12", ("10.244.0.0/24",))
    changed(before, ("service-cidr", "pod-cidr"), found)
    with pytest.raises(WherryError, match=r"this cluster has 10\.96\.0\.0/12"):
        changed(before, (), found)
    with pytest.raises(WherryError, match=r"--pod-cidr 10\.60\.0\.0/16"):
        changed(before, ("service-cidr",), found, pod_cidr="10.60.0.0/16")


def test_the_name_of_a_node_is_that_of_its_certificate(tmp_path: Path) -> None:
    before = cluster(tmp_path)
    ca = pki.new_ca("test", now=SYSTEM.now())
    pair = pki.issue(ca, "system:node:node1", ("system:nodes",), usages=(pki.CLIENT,), now=SYSTEM.now())
    access = kubeconfig.Access(
        server="https://192.0.2.10:6443", ca=ca.cert_pem, certificate=pair.cert_pem, key=pair.key_pem
    )
    before.layout.agent_kubeconfig.parent.mkdir(parents=True)
    kubeconfig.write(before.layout.agent_kubeconfig, kubeconfig.render(access, user="system:node:node1"))
    mistaken = msgspec.structs.replace(before, node_name="other")
    assert identity.saved(mistaken).node_name == "node1"
    changed(mistaken, node_name="node1")
    with pytest.raises(WherryError, match="--node-name other: this machine is node node1"):
        changed(mistaken)


def test_validate_names_the_line_of_such_an_option(tmp_path: Path) -> None:
    before = cluster(tmp_path)
    before.layout.etc.mkdir(parents=True)
    before.save()
    before.layout.config.write_text("node-ip: 192.0.2.10\ncluster-domain: foo.local\n")
    found = CliRunner().invoke(app, ["config", "validate", "--prefix", str(tmp_path)])
    expected = f"{before.layout.config}:2: cluster-domain foo.local: this cluster has cluster.local"
    assert found.exit_code == 1 and str(found.exception).startswith(expected)
