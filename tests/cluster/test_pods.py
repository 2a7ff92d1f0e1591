"""What a pod's spec says and what its containers then see and do."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.cluster import BUSYBOX, NODE, Cluster, eventually
from tests.support.host import ADDRESS
from tests.support.kube import condition, events, wait_phase
from tests.support.pods import (
    FOR_EVER,
    apply,
    container,
    execute,
    logs,
    pod,
    status_of,
    wait_running,
    wait_terminated,
)

SHARED: dict[str, Any] = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
EMPTY: dict[str, Any] = {"volumes": [{"name": "shared", "emptyDir": {}}]}


def told(cluster: Cluster, ns: str, name: str) -> set[tuple[str, str]]:
    return {(e["reason"], e["message"]) for e in events(cluster, ns, name)}


def test_init_containers_run_one_after_the_other_before_the_rest(shared: Cluster, ns: str) -> None:
    note = "echo {0} begins >> /shared/log; sleep 0.3; echo {0} ends >> /shared/log"
    first, second = (container(note.format(name), name, **SHARED) for name in ("first", "second"))
    sidecar = container(f"echo sidecar begins >> /shared/log; {FOR_EVER}", "sidecar", restartPolicy="Always", **SHARED)
    main = container(f"echo main begins >> /shared/log; {FOR_EVER}", **SHARED)
    apply(shared, ns, pod("ordered", main, initContainers=[first, sidecar, second], **EMPTY))
    wait_running(shared, ns, "ordered")
    lines = execute(shared, ns, "ordered", "cat /shared/log").splitlines()
    assert [line for line in lines if "sidecar" not in line] == [
        "first begins",
        "first ends",
        "second begins",
        "second ends",
        "main begins",
    ]
    assert lines.index("first ends") < lines.index("sidecar begins") < lines.index("main begins")
    status = shared.get("pod", "ordered", "-n", ns)["status"]
    states = {s["name"]: next(iter(s["state"])) for s in status["initContainerStatuses"]}
    assert states == {"first": "terminated", "sidecar": "running", "second": "terminated"}
    assert {s["ready"] for s in status["initContainerStatuses"]} == {True}
    assert [c["type"] for c in status["conditions"] if c["status"] == "True"] == [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    assert re.search(r"^ordered +2/2 +Running", shared.kubectl("get", "pods", "-n", ns).stdout, re.M)


def test_an_init_container_that_fails_holds_the_pod_or_ends_it(shared: Cluster, ns: str) -> None:
    bad = container("exit 5", "bad")
    apply(
        shared,
        ns,
        pod("never", initContainers=[bad], restartPolicy="Never"),
        pod("always", initContainers=[bad]),
    )
    failed = wait_phase(shared, ns, "never", "Failed")
    assert failed["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
    assert failed["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    initialized = condition(failed, "Initialized")
    assert (initialized["status"], initialized["reason"]) == ("False", "ContainersNotInitialized")
    assert initialized["message"] == "containers with incomplete status: [bad]"

    def shown() -> bool:
        table = shared.kubectl("get", "pods", "-n", ns).stdout
        assert re.search(r"^never +0/1 +Init:Error +0 ", table, re.M), table
        return bool(re.search(r"^always +0/1 +Init:CrashLoopBackOff +\d", table, re.M))

    eventually(shown, "Init:CrashLoopBackOff")
    assert shared.get("pod", "always", "-n", ns)["status"]["phase"] == "Pending"


def test_restart_policies_decide_what_follows_an_exit(shared: Cluster, ns: str) -> None:
    once = "[ -e /shared/been ] && exit 0; touch /shared/been; exit 1"
    apply(
        shared,
        ns,
        pod("never-good", container("exit 0"), restartPolicy="Never"),
        pod("never-bad", container("exit 3"), restartPolicy="Never"),
        pod("never-mixed", container("exit 0", "good"), container("exit 3", "bad"), restartPolicy="Never"),
        pod("failure-good", container("exit 0"), restartPolicy="OnFailure"),
        pod("failure-once", container(once, **SHARED), restartPolicy="OnFailure", **EMPTY),
        pod("failure-bad", container("exit 3"), restartPolicy="OnFailure"),
        pod("always-good", container("exit 0")),
    )
    for name, phase in (
        ("never-good", "Succeeded"),
        ("never-bad", "Failed"),
        ("never-mixed", "Failed"),
        ("failure-good", "Succeeded"),
        ("failure-once", "Succeeded"),
    ):
        found = wait_phase(shared, ns, name, phase)
        restarts = found["status"]["containerStatuses"][0]["restartCount"]
        assert restarts == (1 if name == "failure-once" else 0), name
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        assert condition(found, "Ready")["reason"] == reason
    assert status_of(shared, ns, "never-bad")["state"]["terminated"]["reason"] == "Error"
    assert status_of(shared, ns, "never-good")["state"]["terminated"]["reason"] == "Completed"

    def backing_off(name: str, delay: str) -> bool:
        found = shared.get("pod", name, "-n", ns)
        status, uid = found["status"]["containerStatuses"][0], found["metadata"]["uid"]
        waiting = status["state"].get("waiting", {})
        assert waiting.get("reason") == "CrashLoopBackOff", status
        assert waiting["message"] == f"back-off {delay} restarting failed container=c pod={name}_{ns}({uid})"
        assert found["status"]["phase"] == "Running"
        message = f"Back-off restarting failed container c in pod {name}_{ns}({uid})"
        assert ("BackOff", message) in told(shared, ns, name)
        return True

    for name in ("failure-bad", "always-good"):
        eventually(lambda n=name: backing_off(n, "10s"), f"{name} backs off")  # type: ignore[misc]
    assert status_of(shared, ns, "always-good")["lastState"]["terminated"]["exitCode"] == 0
    eventually(lambda: backing_off("failure-bad", "20s"), "the next wait is twice as long")
    assert status_of(shared, ns, "failure-bad")["restartCount"] == 2
    table = shared.kubectl("get", "pods", "-n", ns).stdout
    assert re.search(r"^failure-bad +0/1 +CrashLoopBackOff +2 \(\d+s ago\) ", table, re.M), table
    assert re.search(r"^never-good +0/1 +Completed +0 ", table, re.M), table
    assert re.search(r"^never-bad +0/1 +Error +0 ", table, re.M), table


def test_the_environment_holds_what_was_asked_for(shared: Cluster, ns: str) -> None:
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


def test_pods_share_the_hosts_network_and_their_own_processes_when_asked(shared: Cluster, ns: str) -> None:
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


def test_hooks_run_after_the_start_and_before_the_stop(shared: Cluster, ns: str) -> None:
    def hook(script: str) -> dict[str, Any]:
        return {"exec": {"command": ["sh", "-c", script]}}

    folder = shared.prefix / f"hooks-{ns}"
    volumes: dict[str, Any] = {
        "volumes": [{"name": "shared", "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"}}]
    }
    both = {
        "postStart": hook("echo started > /shared/start"),
        "preStop": hook("sleep 0.5; echo stopping > /shared/stop"),
    }
    main = "trap 'cat /shared/stop > /shared/seen; exit 0' TERM; while :; do sleep 0.1; done"
    bad = {"postStart": hook("echo no luck; exit 9")}
    apply(
        shared,
        ns,
        pod("hooked", container(main, lifecycle=both, **SHARED), **{**volumes, "terminationGracePeriodSeconds": 10}),
        pod("unlucky", container(lifecycle=bad), restartPolicy="Never"),
    )
    wait_running(shared, ns, "hooked")
    assert (folder / "start").read_text() == "started\n"
    shared.kubectl("delete", "pod", "hooked", "-n", ns)
    assert (folder / "seen").read_text() == "stopping\n", "the hook had ended when SIGTERM came"

    def failed() -> bool:
        found = told(shared, ns, "unlucky")
        assert any(reason == "FailedPostStartHook" for reason, _ in found), found
        assert ("Killing", "FailedPostStartHook") in found, found
        return True

    eventually(failed, "the failed hook's events")


def test_a_pod_gets_its_grace_and_then_the_end(shared: Cluster, ns: str) -> None:
    apply(
        shared,
        ns,
        pod("stubborn", container("trap 'echo ignored' TERM; while :; do sleep 0.1; done")),
        pod("polite", container("trap 'echo bye; exit 3' TERM; while :; do sleep 0.1; done")),
    )
    wait_running(shared, ns, "stubborn", "polite")
    watch = shared.host.popen(*shared.kubectl_argv("get", "pods", "-n", ns, "-w", "-o", "json"))
    assert watch.stdout is not None
    try:
        shared.kubectl("delete", "pod", "stubborn", "polite", "-n", ns)
    finally:
        watch.terminate()
    ends = {}
    decoder, rest = json.JSONDecoder(), watch.stdout.read().lstrip()
    while rest:
        try:
            obj, end = decoder.raw_decode(rest)
        except json.JSONDecodeError:
            break
        rest = rest[end:].lstrip()
        for each in obj.get("items", [obj]):
            for status in each["status"].get("containerStatuses", ()):
                if "terminated" in status["state"]:
                    ends[each["metadata"]["name"]] = status["state"]["terminated"]["exitCode"]
    assert ends == {"stubborn": 137, "polite": 3}
    for name in ("stubborn", "polite"):
        assert ("Killing", "Stopping container c") in told(shared, ns, name)


def test_the_last_words_of_a_container_are_kept(shared: Cluster, ns: str) -> None:
    apply(
        shared,
        ns,
        pod("file", container("echo -n from the file > /dev/termination-log; exit 1"), restartPolicy="Never"),
        pod("own", container("echo -n mine > /tmp/last", terminationMessagePath="/tmp/last"), restartPolicy="Never"),
        pod(
            "words",
            container("echo out; echo err >&2; exit 2", terminationMessagePolicy="FallbackToLogsOnError"),
            restartPolicy="Never",
        ),
        pod(
            "silent",
            container("echo fine", terminationMessagePolicy="FallbackToLogsOnError"),
            restartPolicy="Never",
        ),
    )
    assert wait_terminated(shared, ns, "file")["message"] == "from the file"
    assert wait_terminated(shared, ns, "own")["message"] == "mine"
    assert sorted(wait_terminated(shared, ns, "words")["message"].split()) == ["err", "out"]
    assert "message" not in wait_terminated(shared, ns, "silent")


def test_limits_of_memory_and_time_end_a_pod(shared: Cluster, ns: str) -> None:
    limits = {"limits": {"memory": "32Mi"}}
    hungry = {**container(resources=limits), "command": ["tail", "-c", "190000000", "/dev/zero"]}
    apply(
        shared,
        ns,
        pod("hungry", hungry, restartPolicy="Never"),
        pod("slow", restartPolicy="Never", activeDeadlineSeconds=1),
    )
    end = wait_terminated(shared, ns, "hungry")
    assert (end["reason"], end["exitCode"]) == ("OOMKilled", 137)
    assert wait_phase(shared, ns, "hungry", "Failed")
    slow = wait_phase(shared, ns, "slow", "Failed")
    assert slow["status"]["reason"] == "DeadlineExceeded"
    assert slow["status"]["message"] == "Pod was active on the node longer than the specified deadline"
    eventually(
        lambda: (
            ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            in told(shared, ns, "slow")
        ),
        "the event",
    )


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


def test_an_ephemeral_container_joins_a_running_pod(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("patient"))
    wait_running(shared, ns, "patient")
    before = status_of(shared, ns, "patient")["containerID"]
    shared.kubectl(
        "debug", "patient", "-n", ns, f"--image={BUSYBOX}", "--target=c", "-c", "doctor", "--", "sh", "-c", "ps -o args"
    )

    def ended() -> dict[str, Any] | None:
        state = status_of(shared, ns, "patient", "doctor", "ephemeralContainerStatuses").get("state", {})
        found: dict[str, Any] | None = state.get("terminated")
        return found

    assert eventually(ended, "the ephemeral container's end")["exitCode"] == 0
    assert "sleep 0.2" in logs(shared, ns, "patient", "-c", "doctor"), "it sees the target's processes"
    assert status_of(shared, ns, "patient")["containerID"] == before
