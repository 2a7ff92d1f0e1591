"""Upstream's command lines: flags of a kubeadm manifest are accepted, and unsupported ones are refused by name."""

from __future__ import annotations

import dataclasses
import ssl
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from control.__main__ import api_server_config, cli
from control.components import standalone
from control.components.secure_port import MANAGER, SCHEDULER
from control.components.standalone import Options, options
from control.config import ControlConfig
from control.flags import api_server, controller_manager, scheduler
from control.flags.command import FlagError, read
from control.server import serve
from kube import pki, pki_layout
from tests.support.handshake import shake

FILES = "--tls-cert-file=/p/a.crt --tls-private-key-file=/p/a.key --client-ca-file=/p/ca.crt "
KUBEADM = (
    FILES
    + "--advertise-address=192.0.2.1 --allow-privileged=true --authorization-mode=Node,RBAC "
    + "--enable-admission-plugins=NodeRestriction --enable-bootstrap-token-auth=true "
    + "--etcd-cafile=/p/etcd.crt --etcd-certfile=/p/c.crt --etcd-keyfile=/p/c.key --etcd-servers=https://127.0.0.1:2379 "
    + "--kubelet-client-certificate=/p/k.crt --kubelet-client-key=/p/k.key "
    + "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname --proxy-client-cert-file=/p/f.crt "
    + "--proxy-client-key-file=/p/f.key --requestheader-allowed-names=front-proxy-client "
    + "--requestheader-client-ca-file=/p/fca.crt --requestheader-extra-headers-prefix=X-Remote-Extra- "
    + "--requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User --secure-port=6443 "
    + "--service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file=/p/sa.pub "
    + "--service-account-signing-key-file=/p/sa.key --service-cluster-ip-range=10.96.0.0/12"
)


def config(line: str) -> ControlConfig:
    return api_server_config(read(line.split(), {**api_server.FLAGS}, api_server.FIXED))


def test_the_command_line_of_a_kubeadm_manifest_is_understood() -> None:
    found = config(KUBEADM + " --request-timeout 90s --anonymous-auth --service-node-port-range 31000+99")
    assert (found.store, found.etcd_servers, found.enable_controllers) == ("etcd", ("https://127.0.0.1:2379",), False)
    assert (found.request_timeout, found.anonymous_auth, found.node_port_range) == (90, True, (31000, 31099))
    assert found.service_account_public_key_file == Path("/p/sa.pub") and found.enabled_admission == (
        "NodeRestriction",
    )
    assert found.service_account_extend_token_expiration
    assert not config(
        KUBEADM + " --service-account-extend-token-expiration=false"
    ).service_account_extend_token_expiration


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--no-such-flag=1", "unknown flag: --no-such-flag"),
        ("-x", "unknown shorthand flag: -x"),
        ("stray", "unexpected argument: stray"),
        ("--secure-port", "flag needs an argument: --secure-port"),
        ("--secure-port=many", "--secure-port: 'many': must be a whole number"),
        ("--profiling", "--profiling=true is not supported: there is no profiler"),
        ("--storage-backend=etcd2", "--storage-backend=etcd2 is not supported"),
        ("--tls-min-version=VersionTLS9", "--tls-min-version: 'VersionTLS9': unknown tls version \"VersionTLS9\""),
        ("--tls-cipher-suites=A,B", "--tls-cipher-suites: 'A,B': Cipher suite A not supported or doesn't exist"),
        ("--service-node-port-range=5-1", "must be a range of ports"),
        ("--service-cluster-ip-range=x", "--service-cluster-ip-range: 'x'"),
        (FILES, "--service-account-signing-key-file is required"),
        (FILES + "--service-account-signing-key-file=/p/sa.key --feature-gates=WatchList=false", "locked to true"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_sentence(line: str, why: str) -> None:
    with pytest.raises(FlagError) as caught:
        config(line)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_the_controllers_flags_are_theirs_or_their_files_fields() -> None:
    line = (
        "--kubeconfig=/p/cm.conf --authentication-kubeconfig=/p/cm.conf --leader-elect=false --controllers=*,-job "
        "--allocate-node-cidrs=true --cluster-cidr=10.244.0.0/16 --use-service-account-credentials=true "
        "--horizontal-pod-autoscaler-sync-period=30s --node-monitor-grace-period=40s --bind-address=127.0.0.1"
    )
    given = read(line.split(), controller_manager.FLAGS, controller_manager.FIXED)
    found = options(MANAGER, 10257, given)
    assert (found.leader_elect, found.controllers, found.cluster_cidr) == (False, ("*", "-job"), "10.244.0.0/16")
    assert found.sections["hPAController"] == {"horizontalPodAutoscalerSyncPeriod": "30s"}
    assert found.sections["kubeCloudShared"] == {"useServiceAccountCredentials": True}
    standalone._controllers(found, standalone.SYSTEM)
    with pytest.raises(FlagError, match="'nothing' is not in the list"):
        standalone._controllers(dataclasses.replace(found, controllers=("nothing",)), standalone.SYSTEM)


def test_a_signing_certificate_or_key_that_cannot_be_read_is_refused_before_anything_starts(tmp_path: Path) -> None:
    pair = pki.new_ca("ca", datetime.now(UTC))
    cert, key, bad = tmp_path / "ca.crt", tmp_path / "ca.key", tmp_path / "bad"
    cert.write_bytes(pair.cert_pem)
    key.write_bytes(pair.key_pem)
    bad.write_text("nothing")
    for signing_cert, signing_key, flag in ((bad, key, "cert"), (cert, bad, "key")):
        chosen = Options(MANAGER, 0, signing_cert_file=signing_cert, signing_key_file=signing_key)
        with pytest.raises(FlagError, match=f"--cluster-signing-{flag}-file: not a"):
            standalone._controllers(chosen, standalone.SYSTEM)
    good = Options(MANAGER, 0, signing_cert_file=cert, signing_key_file=key)
    standalone._controllers(good, standalone.SYSTEM)


def test_a_daemon_needs_to_know_where_its_server_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["kube-scheduler", "--leader-elect=true"]) == 1
    assert capsys.readouterr().err == (
        "Error: --kubeconfig is required: it contains the API server's address and this daemon's credentials\n"
    )
    assert cli(["kube-other"]) == 1 and "there is no daemon" in capsys.readouterr().err
    assert cli(["--version"]) == 0 and capsys.readouterr().out.startswith("Kubernetes v1.36")


def test_every_flag_has_a_field() -> None:
    servers = set(ControlConfig.__struct_fields__)
    assert {field for field, _ in api_server.FLAGS.values()} <= servers
    others = {field.name for field in dataclasses.fields(Options)}
    for table in (controller_manager, scheduler):
        assert {field for field, _ in table.FLAGS.values() if "." not in field} <= others
        assert not set(table.FLAGS) & set(table.FIXED)
    assert not set(api_server.FLAGS) & set(api_server.FIXED)


def test_the_ports_of_all_three_daemons_take_cipher_suites_and_a_version(tmp_path: Path) -> None:
    line = "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA --tls-min-version=VersionTLS12"
    keys = pki_layout.ensure(tmp_path, now=datetime.now(UTC))
    server = msgspec.structs.replace(
        config(KUBEADM + " " + line),
        cert_file=tmp_path / "apiserver.crt",
        key_file=tmp_path / "apiserver.key",
        client_ca_file=tmp_path / "ca.crt",
        requestheader_client_ca_file=None,
    )
    contexts = [serve.tls_context(server)]
    for name, table in ((MANAGER, controller_manager), (SCHEDULER, scheduler)):
        files = f" --kubeconfig=/p/a.conf --tls-cert-file={server.cert_file} --tls-private-key-file={server.key_file}"
        chosen = options(name, 10257, read((line + files).split(), table.FLAGS, table.FIXED))
        contexts.append(standalone._tls(chosen))
    for context in contexts:
        with pytest.raises(ssl.SSLError):
            shake(context, keys.ca.cert_pem, "ECDHE-ECDSA-AES128-GCM-SHA256", ssl.TLSVersion.TLSv1_2)
        assert shake(context, keys.ca.cert_pem, newest=ssl.TLSVersion.TLSv1_2)[1] == "ECDHE-ECDSA-AES256-SHA"
    with pytest.raises(ssl.SSLError):
        plain = msgspec.structs.replace(server, tls_cipher_suites=())
        shake(serve.tls_context(plain), keys.ca.cert_pem, "ECDHE-ECDSA-AES256-SHA", ssl.TLSVersion.TLSv1_2)
