"""Symptoms of docs/troubleshooting.md that a node's daemons or programs cause, as groups that last together.

A group costs as much as its slowest row. The commands of one break more than its own row: nothing else may be walked meanwhile.
"""

from __future__ import annotations

from typing import Any

from tests.support.limit_symptoms import without
from tests.support.symptoms import Symptom, apply, gateway, pod

ADDRESS = r"\d+\.\d+\.\d+\.\d+"
PID = 'wherry status -o json | sed -n \'/"{}"/,/}}/s/.*"pid": \\([0-9]*\\).*/\\1/p\''
PROGRAMS = """
mkdir tools && ln -s /usr/bin/* /usr/sbin/* tools/ 2>/dev/null
rm tools/nft && ln -sf /usr/sbin/iptables-legacy tools/iptables
tools=$PWD/tools; narrow=$(dirname $(command -v wherry)):$tools
"""
"""Programs in place of the machine's own: no nft, and iptables of another variant than the rules."""
LISTENERS = """
import socket, time
kept = []
for port in range(61000, 62024):
    try:
        one = socket.create_server(("", port))
    except OSError:
        continue
    kept.append(one)
print("ready", flush=True)
time.sleep(120)
"""
EXPIRED = """
import pathlib, sys
from datetime import timedelta
from kube import pki
from kube.clock import SYSTEM
folder = pathlib.Path(sys.argv[1])
ca = pki.KeyPair.load(folder, "ca")
names = [sys.argv[2], "127.0.0.1"]
former = SYSTEM.now() - timedelta(days=800)
pki.issue(ca, "kube-apiserver", (), usages=(pki.SERVER,), sans=names, now=former).save(folder, "apiserver")
"""
NO_NETWORK: dict[str, Symptom] = {
    "container runtime network not ready": Symptom(
        apply(gateway("quiet", port=22501))
        + f"\nkubectl wait --for=condition=Programmed gateway/quiet && netproxy=$({PID.format('netproxy')}); "
        "kill -STOP $netproxy && rm $PREFIX/etc/cni/net.d/10-wherry.conflist",
        without("10-wherry"),
        "kill -CONT $netproxy",
        ("wherry status", "node1: Ready"),
        seen="kubectl describe node node1",
        command="ls $PREFIX/etc/cni/net.d",
    ),
    "network is not ready: …": Symptom(
        apply(pod("unconnected", nodeName="node1")),
        "container runtime network not ready",
        "true",  # that of the row above
        ("kubectl get pod unconnected", "1/1 +Running"),
        values={"NAME": "unconnected"},
    ),
    "No node is ready": Symptom(
        "true",
        "node1 +NotReady",
        "true",
        ("kubectl describe gateway quiet", without("No node is ready")),
        seen="kubectl describe gateway quiet",
    ),
}


def listeners(number: int, count: int = 64) -> dict[str, Any]:
    """Return a gateway with listeners, by default as many as one may have."""
    found = gateway("g", f"wide{number}")
    first = 22000 + 64 * number
    found["spec"]["listeners"] = [
        {"name": f"l{port}", "protocol": "HTTP", "port": port} for port in range(first, first + count)
    ]
    return found


def spaces(count: int) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"wide{number}"}} for number in range(count)]


TOOLS: dict[str, Symptom] = {
    "cluster DNS answers machines of the node's network: …": Symptom(
        f"{PROGRAMS}\nwherry down && PATH=$narrow wherry up $IDENTITY",
        r"\A(?!.*/nft)",
        "ln -s /usr/sbin/nft tools/",  # the last row of the group starts the daemons again
        ("nft list tables", "wherry"),
        seen="wherry logs netproxy -n 200",
        command="PATH=$tools which nft || true",
    ),
    "no new resolvers for names outside the cluster: …: …": Symptom(
        "mv $PREFIX/resolv.conf . && busybox nslookup a.example $DNS || true",
        "No such file",
        "mv resolv.conf $PREFIX/",
        ("cat $PREFIX/resolv.conf", "nameserver"),
        seen="wherry logs netproxy -n 200",
        command="cat $PREFIX/resolv.conf",
    ),
    "host ports of pods may get what is for Services": Symptom(
        "true",  # the daemons run with the programs above
        "legacy",
        "ln -sf /usr/sbin/iptables-nft tools/iptables; wherry down && wherry up $IDENTITY",
        ("PATH=$tools iptables -V", "nf_tables"),
        seen="wherry logs netproxy -n 200",
        command="PATH=$tools iptables -V",
    ),
}
PORTS: dict[str, Symptom] = {
    "Other programs have ports of this node's gateway: …": Symptom(
        f"cat >listeners.py <<'END'\n{LISTENERS}END\n(ulimit -n 4096; exec $PYTHON listeners.py >listening 2>&1) &\nholder=$!; "
        "until grep -q ready listening; do kill -0 $holder || break; sleep 0.1; done; "
        + apply(gateway("blocked", port=22500)),
        ":61[0-9]*.*python",
        "kill $holder",
        ("kubectl get gateway blocked -o jsonpath={.status.addresses[0].value}", ADDRESS),
        seen="kubectl describe node node1",
    ),
    "The nodes do not listen on the ports of the Gateway yet": Symptom(
        "true",  # the programs above have the ports
        "do not listen",
        "true",
        ("kubectl describe gateway blocked", without("do not listen on the ports")),
        values={"NAME": "blocked"},
    ),
    "few ports of gateways on the nodes are free: a namespace may have …": Symptom(
        apply(*spaces(4), *(listeners(number) for number in range(3))) + "\nsleep 1; " + apply(listeners(3)),
        "wide2 +g",
        apply(listeners(3, 8)),
        ("kubectl describe gateway -n wide3 g", without("few ports of gateways")),
        seen="kubectl describe gateway -n wide3 g",
    ),
    "the snapshot is complete, and was not copied to S3: …": Symptom(
        "printf 'aws_access_key_id = a\\naws_secret_access_key = b\\n' >keys && chmod 600 keys && wherry up $IDENTITY "
        "--snapshot-s3-bucket backups --snapshot-s3-endpoint https://127.0.0.1:9 --snapshot-s3-credentials $PWD/keys",
        "snapshot-s3-endpoint: https://127.0.0.1:9",
        "wherry up $IDENTITY --unset snapshot-s3-bucket --unset snapshot-s3-endpoint --unset snapshot-s3-credentials",
        ("wherry snapshot save", without("not copied")),
        seen="wherry snapshot save",
    ),
}
CLOCK: dict[str, Symptom] = {
    "the certificate of … is not valid at … UTC (…): is a clock wrong?": Symptom(
        f"cat >expired.py <<'END'\n{EXPIRED}END\n"
        "line=$(wherry token create --print-join-command) && "
        "$PYTHON expired.py $PREFIX/var/lib/wherry/pki $(kubectl get node node1 -o jsonpath='{.status.addresses[0].address}')",
        "20[0-9][0-9]",
        "wherry certs renew",
        ("wherry status", "node1: Ready"),
        seen="$line --prefix $OTHER --node-name other --kubelet-port 20250 --kubelet-healthz-port 20248 "
        "--proxy-healthz-port 20256 --proxy-metrics-port 20249 --dns-metrics-port 29153",
        command="date -u",
    ),
}
GROUPS = {"no pod network": NO_NETWORK, "programs of the node": TOOLS, "ports": PORTS, "clock": CLOCK}
SYMPTOMS = {message: symptom for group in GROUPS.values() for message, symptom in group.items()}
