"""Command lines of the daemons on a machine that `wherry up` made. Wherry's standalone daemons take the same as upstream's."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.conformance.upstream import Upstream
from tests.support.cluster import Cluster

ETCD = "http://127.0.0.1:2379"
_KUBELET_1_20 = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {pki}/ca.crt}}}}
authorization: {{mode: Webhook}}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
enforceNodeAllocatable: [pods]
resolvConf: {prefix}/resolv.conf
tlsCertFile: {prefix}/var/lib/kubelet/pki/kubelet.crt
tlsPrivateKeyFile: {prefix}/var/lib/kubelet/pki/kubelet.key
oomScoreAdj: 0
"""


def etcd(cluster: Cluster) -> list[str]:
    return [
        f"--data-dir={cluster.prefix}/var/lib/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
    ]


def api_server(pki: Path, etcd: str, address: str, port: int) -> list[str]:
    """Return kube-apiserver's flags for a folder of certificates as `wherry up` makes it."""
    return [
        f"--etcd-servers={etcd}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-cluster-ip-range=10.96.0.0/12",
        "--allow-privileged=true",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        "--storage-media-type=application/json",  # the only one that both sides read
    ]


def controllers(cluster: Cluster) -> list[str]:
    pki = cluster.prefix / "var/lib/wherry/pki"
    return [
        f"--kubeconfig={cluster.kubeconfig}",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.244.0.0/16",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
    ]


def scheduler(cluster: Cluster) -> list[str]:
    return [f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false"]


def kubelet(cluster: Cluster, upstream: Upstream) -> list[str]:
    """Write the kubelet's configuration and return its flags: Wherry's file, or for v1.20 one that it can read."""
    prefix, old = cluster.prefix, upstream.minor < 24
    cgroup = f"/wherry-{str(prefix).strip('/').replace('/', '-')}"
    for controller in Path("/sys/fs/cgroup").iterdir():
        if controller.is_dir():
            (controller / cgroup.strip("/")).mkdir(exist_ok=True)
    settings = prefix / "kubelet-of-upstream.yaml"
    if old:
        settings.write_text(_KUBELET_1_20.format(pki=prefix / "var/lib/wherry/pki", prefix=prefix, cgroup=cgroup))
    else:
        wherrys = yaml.safe_load((prefix / "etc/wherry/kubelet.yaml").read_text())
        settings.write_text(yaml.safe_dump({**wherrys, "failCgroupV1": False, "oomScoreAdj": 0}))
    runtime = [
        "--container-runtime=remote",
        f"--container-runtime-endpoint=unix://{prefix}/run/wherry/containerd.sock",
        "--pod-infra-container-image=wherry.local/pause:2",
    ]
    return [
        f"--config={settings}",
        f"--kubeconfig={prefix}/etc/wherry/agent.kubeconfig",
        *(runtime if old else []),
        f"--hostname-override={cluster.node}",
        f"--node-ip={cluster.host.address}",
        f"--root-dir={prefix}/var/lib/kubelet",
        f"--cert-dir={prefix}/var/lib/kubelet/pki",
    ]


def proxy(cluster: Cluster, mode: str) -> list[str]:
    return [
        f"--kubeconfig={cluster.prefix}/etc/wherry/netproxy.kubeconfig",
        f"--hostname-override={cluster.node}",
        f"--proxy-mode={mode}",
        "--cluster-cidr=10.244.0.0/16",
        "--conntrack-max-per-core=0",  # the limits are the machine's own
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]
