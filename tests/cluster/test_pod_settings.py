"""Settings of a pod's containers: environment, names, permissions, networks, limits, a token."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.cluster import NODE, Cluster, eventually
from tests.support.host import ADDRESS
from tests.support.kube import wait_phase
from tests.support.pods import (
    FOR_EVER,
    apply,
    container,
    execute,
    logs,
    pod,
    status_of,
    wait_running,
)

SHARED: dict[str, Any] = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
EMPTY: dict[str, Any] = {"volumes": [{"name": "shared", "emptyDir": {}}]}


def test_the_environment_holds_what_was_requested(shared: Cluster, ns: str) -> None:
    shared.kubectl("create", "configmap", "settings", "--from-literal=COLOUR=blue", "--from-literal=K=v", "-n", ns)
    shared.kubectl("create", "secret", "generic", "keys", "--from-literal=PIN=1234", "-n", ns)
    shared.kubectl("create", "service", "clusterip", "data-base", "--tcp=5432", "-n", ns)
    address = shared.get("service", "data-base", "-n", ns)["spec"]["clusterIP"]

    def field(name: str, path: str) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    def resource(name: str, which: str, divisor: str) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"resourceFieldRef": {"resource": which, "divisor": divisor}}}

    env = [
        {"name": "A", "value": "one"},
        {"name": "B", "value": "$(A) $(K) $$(A) $(NONE)"},
        {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "K"}}},
        {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "no", "key": "no", "optional": True}}},
        field("NAME", "metadata.name"),
        field("NAMESPACE", "metadata.namespace"),
        field("UID", "metadata.uid"),
        field("LABEL", "metadata.labels['tier']"),
        field("NOTE", "metadata.annotations['note']"),
        field("NODE", "spec.nodeName"),
        field("ACCOUNT", "spec.serviceAccountName"),
        field("HOST_IP", "status.hostIP"),
        field("POD_IP", "status.podIP"),
        field("POD_IPS", "status.podIPs"),
        resource("CPU", "limits.cpu", "1m"),
        resource("CPUS", "limits.cpu", "1"),
        resource("MEMORY", "requests.memory", "1Mi"),
        resource("DISK", "limits.ephemeral-storage", "1Mi"),
    ]
    from_ = [{"prefix": "S_", "configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}}]
    limits = {"limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"memory": "32Mi"}}
    speaker = {
        **container(env=env, envFrom=from_, resources=limits, workingDir="/usr/bin"),
        "command": ["sh", "-c", 'env; echo "ARGS $*"; pwd', "$(A)"],
        "args": ["$(B)", "$$(A)"],
    }
    made = pod("speaker", speaker, labels={"tier": "front"}, restartPolicy="Never", enableServiceLinks=True)
    made["metadata"]["annotations"] = {"note": "two\nlines"}
    apply(shared, ns, made)
    done = wait_phase(shared, ns, "speaker", "Succeeded")
    output = logs(shared, ns, "speaker")
    seen = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    wanted = {
        "A": "one",
        "B": "one $(K) $(A) $(NONE)",
        "K": "v",
        "S_COLOUR": "blue",
        "S_K": "v",
        "PIN": "1234",
        "NAME": "speaker",
        "NAMESPACE": ns,
        "UID": done["metadata"]["uid"],
        "LABEL": "front",
        "NOTE": "two",
        "NODE": NODE,
        "ACCOUNT": "default",
        "HOST_IP": ADDRESS,
        "POD_IP": done["status"]["podIP"],
        "POD_IPS": done["status"]["podIP"],
        "CPU": "250",
        "CPUS": "1",
        "MEMORY": "32",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
        "DATA_BASE_SERVICE_HOST": address,
        "DATA_BASE_PORT_5432_TCP_PROTO": "tcp",
        "HOSTNAME": "speaker",
    }
    assert {key: seen.get(key) for key in wanted} == wanted
    assert int(seen["DISK"]) > 0, "without a limit it is what the node has"
    assert "GONE" not in seen
    assert "\nlines\n" in output
    assert output.endswith("ARGS one $(K) $(A) $(NONE) $(A)\n/usr/bin\n")


def test_hosts_hostname_and_resolver_files(shared: Cluster, ns: str) -> None:
    alias = [{"ip": "10.1.2.3", "hostnames": ["far", "away"]}]
    apply(
        shared,
        ns,
        pod("plain"),
        pod("named", hostname="nick", subdomain="sub", hostAliases=alias),
        pod("own-dns", dnsPolicy="None", dnsConfig={"nameservers": ["10.9.8.7"], "searches": ["a.b"]}),
    )
    wait_running(shared, ns, "plain", "named", "own-dns")
    resolver = execute(shared, ns, "plain", "hostname; cat /etc/resolv.conf")
    assert resolver.splitlines() == [
        "plain",
        f"search {ns}.svc.cluster.local svc.cluster.local cluster.local",
        "nameserver 10.96.0.10",
        "options ndots:5",
    ]
    hosts = execute(shared, ns, "named", "hostname; cat /etc/hosts")
    ip = shared.get("pod", "named", "-n", ns)["status"]["podIP"]
    assert hosts.splitlines()[0] == "nick"
    assert f"{ip}\tnick.sub.{ns}.svc.cluster.local\tnick\n" in hosts
    assert "10.1.2.3\tfar\taway\n" in hosts
    assert hosts.splitlines()[1] == "# Kubernetes-managed hosts file."
    assert execute(shared, ns, "own-dns", "cat /etc/resolv.conf") == "search a.b\nnameserver 10.9.8.7\n"


def test_security_contexts_are_enforced(shared: Cluster, ns: str) -> None:
    look = "id -u; id -g; id -G; touch /new 2>&1; touch /tmp/new 2>&1; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status"
    strict = {
        "runAsUser": 1234,
        "runAsGroup": 2345,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    added = {"capabilities": {"add": ["NET_ADMIN"]}}
    groups = {"supplementalGroups": [3456], "fsGroup": 4567}
    apply(
        shared,
        ns,
        pod(
            "strict",
            container(look, securityContext=strict, **SHARED),
            restartPolicy="Never",
            securityContext=groups,
            **EMPTY,
        ),
        pod(
            "adds",
            container("ip link add dummy0 type bridge && echo made", securityContext=added),
            restartPolicy="Never",
        ),
        pod("lacks", container("ip link add dummy0 type bridge 2>/dev/null || echo refused"), restartPolicy="Never"),
        pod("root", container(securityContext={"runAsNonRoot": True}), restartPolicy="Never"),
        pod(
            "sysctl",
            container("cat /proc/sys/net/ipv4/ip_local_port_range"),
            restartPolicy="Never",
            securityContext={"sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "40000 40010"}]},
        ),
    )
    for name in ("strict", "adds", "lacks", "sysctl"):
        wait_phase(shared, ns, name, "Succeeded")
    uid, gid, every, *rest = logs(shared, ns, "strict").splitlines()
    assert (uid, gid) == ("1234", "2345")
    assert {"2345", "3456", "4567"} <= set(every.split())
    assert rest[0].endswith("Read-only file system")
    assert rest[1].endswith("Read-only file system")
    assert rest[2].split() == ["CapEff:", "0000000000000000"]
    assert rest[3].split() == ["NoNewPrivs:", "1"]
    assert rest[4].split() == ["Seccomp:", "2"]
    assert logs(shared, ns, "adds") == "made\n"
    assert logs(shared, ns, "lacks") == "refused\n"
    assert logs(shared, ns, "sysctl").split() == ["40000", "40010"]

    def refused() -> bool:
        waiting = status_of(shared, ns, "root").get("state", {}).get("waiting", {})
        assert waiting.get("reason") == "CreateContainerConfigError", waiting
        return str(waiting["message"]).startswith("container has runAsNonRoot and image will run as root")

    eventually(refused, "root is refused")


def test_pods_may_share_the_hosts_network_and_a_process_namespace(shared: Cluster, ns: str) -> None:
    serve = "mkdir /www; echo host > /www/index.html; exec httpd -f -p 18181 -h /www"
    port: dict[str, Any] = {"ports": [{"containerPort": 80, "hostPort": 18182}]}
    inner = "mkdir -p /www; echo mapped > /www/index.html; exec httpd -f -p 80 -h /www"
    apply(
        shared,
        ns,
        pod("host", container(serve), hostNetwork=True),
        pod("mapped", container(inner, **port)),
        pod("family", container(FOR_EVER, "one"), container(FOR_EVER, "two"), shareProcessNamespace=True),
    )
    wait_running(shared, ns, "host", "mapped", "family")
    assert shared.get("pod", "host", "-n", ns)["status"]["podIP"] == ADDRESS
    assert eventually(lambda: shared.http(f"{ADDRESS}:18181"), "the host's port") == "host"
    assert eventually(lambda: shared.http(f"{ADDRESS}:18182"), "the mapped port") == "mapped"
    taken = execute(shared, ns, "host", "hostname")
    assert taken == shared.host.run("hostname").stdout
    processes = execute(shared, ns, "family", "ps -o pid,args")
    assert processes.count("sleep 0.2; done") >= 2, processes
    assert not re.search(r"^ +1 sh -c", processes, re.M), "the sandbox's process is the first"
    shared.kubectl("delete", "pod", "host", "mapped", "-n", ns)
    eventually(lambda: shared.http(f"{ADDRESS}:18182", timeout=1) == "", "the mapped port is closed")


def test_a_pods_cgroups_carry_its_requests_and_limits(shared: Cluster, ns: str) -> None:
    resources = {"requests": {"cpu": "100m", "memory": "16Mi"}, "limits": {"cpu": "200m", "memory": "32Mi"}}
    apply(shared, ns, pod("limited", container(resources=resources)))
    wait_running(shared, ns, "limited")
    found = shared.get("pod", "limited", "-n", ns)
    assert found["status"]["qosClass"] == "Burstable"
    v1, v2 = "memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us", "memory.max cpu.max"
    read = f"cd /sys/fs/cgroup; cat {v1} 2>/dev/null || cat {v2}"
    numbers = execute(shared, ns, "limited", read).split()
    assert numbers[0] == str(32 << 20)
    assert numbers[1] == "20000"


def test_a_service_account_token_opens_the_api_as_far_as_rbac_allows(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("caller"), pod("bare", automountServiceAccountToken=False))
    wait_running(shared, ns, "caller", "bare")
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert execute(shared, ns, "caller", f"cat {folder}/namespace") == ns
    assert "BEGIN CERTIFICATE" in execute(shared, ns, "caller", f"cat {folder}/ca.crt")
    assert execute(shared, ns, "bare", f"ls {folder} 2>&1 || true").endswith("No such file or directory\n")
    # busybox's TLS is too old for the server; curl takes the pod's network, its CA, its token and its idea of the name.
    authority = shared.prefix / f"{ns}-ca.crt"
    authority.write_text(execute(shared, ns, "caller", f"cat {folder}/ca.crt"))
    answer = execute(shared, ns, "caller", "nslookup kubernetes.default.svc.cluster.local")
    assert answer.rstrip().endswith("Address: 10.96.0.1"), answer
    identity = status_of(shared, ns, "caller")["containerID"].removeprefix("containerd://")
    process = next(line.split()[1] for line in shared.ctr("tasks", "list").splitlines() if line.startswith(identity))

    def ask(*headers: str) -> tuple[int, Any]:
        argv = [
            "nsenter",
            "-t",
            process,
            "-n",
            "curl",
            "-sS",
            "--cacert",
            str(authority),
            "-w",
            "\n%{http_code}",
            *headers,
        ]
        argv += ["--resolve", "kubernetes.default.svc:443:10.96.0.1"]
        output = shared.host.run(*argv, f"https://kubernetes.default.svc/api/v1/namespaces/{ns}/pods").stdout
        body, _, code = output.rpartition("\n")
        return int(code), json.loads(body)

    bearer = ("-H", f"Authorization: Bearer {execute(shared, ns, 'caller', f'cat {folder}/token')}")
    assert ask()[0] == 401
    code, refused = ask(*bearer)
    assert (code, refused["reason"]) == (403, "Forbidden")
    assert f'User "system:serviceaccount:{ns}:default" cannot list resource "pods"' in refused["message"]
    shared.kubectl("create", "rolebinding", "view", "--clusterrole=view", f"--serviceaccount={ns}:default", "-n", ns)
    eventually(lambda: ask(*bearer)[0] == 200, "the binding counts")
    assert {p["metadata"]["name"] for p in ask(*bearer)[1]["items"]} == {"caller", "bare"}
