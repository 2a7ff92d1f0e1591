"""Permissions on a running cluster, and known faults of other products that must not be repeated here."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import NODE, Cluster, eventually
from tests.support.host import ADDRESS
from tests.support.kube import wait_phase
from tests.support.pods import apply, container, execute, logs, pod, wait_running
from tests.support.raw import Raw

KUBELET = f"https://{ADDRESS}:10250"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}


@pytest.fixture
def admin(shared: Cluster) -> Raw:
    return Raw(shared)


@pytest.fixture
def node(shared: Cluster) -> Raw:
    """The node's own credentials."""
    return Raw(shared, shared.prefix / "etc/wherry/agent.kubeconfig")


def test_nobody_is_let_in_but_for_health(shared: Cluster, admin: Raw) -> None:
    anonymous = Raw(shared, anonymous=True)
    for path in ("/healthz", "/livez", "/readyz"):
        assert (anonymous.get(path).code, anonymous.get(path).text) == (200, "ok")
    for path in (
        "/",
        "/api",
        "/apis",
        "/metrics",
        "/openapi/v2",
        "/api/v1/secrets",
        "/version",
        "/logs",
        "/debug/pprof/",
    ):
        assert anonymous.get(path).refusal == (401, "Unauthorized", "Unauthorized"), path
    answer = anonymous.post("/api/v1/namespaces", {"metadata": {"name": "sneaked"}})
    assert answer.refusal[0] == 401
    assert admin.get("/api/v1/namespaces/sneaked").code == 404


def test_the_kubelets_port_authenticates_and_authorizes(shared: Cluster, ns: str, admin: Raw, node: Raw) -> None:
    apply(shared, ns, pod("box"))
    wait_running(shared, ns, "box")
    anonymous = Raw(shared, anonymous=True)
    token = shared.kubectl("create", "token", "default", "-n", ns).stdout.strip()
    account = Raw(shared, token=token)
    paths = ("/pods", "/metrics", "/stats/summary", f"/containerLogs/{ns}/box/c", "/healthz", "/configz")
    for path in paths:
        ask: dict[str, Any] = {"server": KUBELET, "options": ("-k",)}
        assert anonymous.get(path, **ask).code == 401, path
        assert account.get(path, **ask).code == 403, path
        assert node.get(path, **ask).code == 403, path
        assert admin.get(path, **ask).code == 200, path
    run = f"/exec/{ns}/box/c?command=id&output=1"
    for who, code in ((anonymous, 401), (account, 403), (node, 403)):
        assert who.post(run, "", server=KUBELET, options=("-k",)).code == code
    wrong = Raw(shared, token="a.b.c")
    assert wrong.get("/pods", server=KUBELET, options=("-k",)).code == 401


def test_the_ports_of_controllers_and_scheduler_authenticate_and_authorize(
    shared: Cluster, ns: str, admin: Raw
) -> None:
    anonymous = Raw(shared, anonymous=True)
    token = shared.kubectl("create", "token", "default", "-n", ns).stdout.strip()
    account, wrong = Raw(shared, token=token), Raw(shared, token="a.b.c")
    for port, metric in ((10257, 'workqueue_adds_total{name="deployment"}'), (10259, "scheduler_pending_pods{")):
        ask: dict[str, Any] = {"server": f"https://127.0.0.1:{port}"}
        assert anonymous.get("/healthz", **ask).text == "ok"
        assert [who.get("/metrics", **ask).code for who in (anonymous, account, wrong)] == [403, 403, 401]
        assert anonymous.get("/configz", **ask).code == 403
        answer = admin.get("/metrics", **ask)
        assert answer.code == 200 and metric in answer.text and not re.search(r"_created[{ ]", answer.text)
    shared.kubectl(
        "create", "clusterrolebinding", ns, "--clusterrole=system:monitoring", f"--serviceaccount={ns}:default"
    )
    try:
        eventually(
            lambda: account.get("/metrics", server="https://127.0.0.1:10257").code == 200,
            "the account may scrape",
            30,
        )
    finally:
        shared.kubectl("delete", "clusterrolebinding", ns)


def test_a_node_touches_only_what_is_its_own(shared: Cluster, ns: str, admin: Raw, node: Raw) -> None:
    shared.kubectl("create", "secret", "generic", "used", "--from-literal=k=v", "-n", ns)
    shared.kubectl("create", "secret", "generic", "other", "--from-literal=k=v", "-n", ns)
    volumes = [{"name": "v", "secret": {"secretName": "used"}}]
    apply(shared, ns, pod("box", volumes=volumes))
    wait_running(shared, ns, "box")
    path = f"/api/v1/namespaces/{ns}"
    assert node.get(f"{path}/secrets/used").code == 200
    code, _, message = node.get(f"{path}/secrets/other").refusal
    assert code == 403
    assert message.endswith(f"no relationship found between node '{NODE}' and this object")
    assert node.get(f"{path}/secrets").code == 403
    assert node.get("/api/v1/secrets").code == 403
    assert node.send("PUT", f"{path}/secrets/used", {"metadata": {"name": "used"}}).code == 403

    merge: dict[str, Any] = {"content_type": "application/merge-patch+json"}
    assert admin.post("/api/v1/nodes", {"metadata": {"name": "node9"}}).code == 201
    try:
        assert node.get("/api/v1/nodes/node9").code == 403
        code, _, message = node.send("PATCH", "/api/v1/nodes/node9/status", {"status": {}}, **merge).refusal
        assert (code, message) == (
            403,
            f'nodes "node9" is forbidden: node "{NODE}" is not allowed to modify node "node9"',
        )
        assert node.send("DELETE", "/api/v1/nodes/node9").code == 403
        lease = {"metadata": {"name": "node9"}, "spec": {"holderIdentity": NODE}}
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        assert node.post(leases, lease).code == 403
        other = pod("elsewhere", nodeName="node9")
        assert admin.post(f"{path}/pods", other).code == 201
        assert node.send("DELETE", f"{path}/pods/elsewhere").code == 403
        assert (
            node.send("PATCH", f"{path}/pods/elsewhere/status", {"status": {"phase": "Running"}}, **merge).code == 403
        )
    finally:
        admin.send("DELETE", f"{path}/pods/elsewhere?gracePeriodSeconds=0")
        admin.send("DELETE", "/api/v1/nodes/node9")

    def labels(name: str) -> int:
        body = {"metadata": {"labels": {name: "x"}}}
        return node.send("PATCH", f"/api/v1/nodes/{NODE}", body, **merge).code

    assert labels("node-restriction.kubernetes.io/team") == 403
    assert labels("node-role.kubernetes.io/control-plane") == 403
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert node.send("PATCH", f"/api/v1/nodes/{NODE}", taint, **merge).code == 403
    free = pod("free", nodeName=NODE)
    code, _, message = node.post(f"{path}/pods", free).refusal
    assert code == 403
    assert "can only create mirror pods" in message
    request = {"spec": {"audiences": [], "expirationSeconds": 600}}
    assert node.post("/api/v1/namespaces/kube-system/serviceaccounts/default/token", request).code == 403
    unbound = node.post(f"{path}/serviceaccounts/default/token", request)
    assert unbound.code == 403, "a node asks only for tokens that are bound to its pods"
    assert node.get("/apis/rbac.authorization.k8s.io/v1/clusterroles").code == 403


def test_exec_by_a_get_request_is_authorised_as_create(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("box"))
    wait_running(shared, ns, "box")
    shared.kubectl("create", "serviceaccount", "reader", "-n", ns)
    shared.kubectl(
        "create", "role", "read", "--verb=get", "--resource=pods,pods/exec,pods/attach,pods/portforward", "-n", ns
    )
    shared.kubectl("create", "rolebinding", "read", "--role=read", f"--serviceaccount={ns}:reader", "-n", ns)
    token = shared.kubectl("create", "token", "reader", "-n", ns).stdout.strip()
    reader = Raw(shared, token=token)
    path = f"/api/v1/namespaces/{ns}/pods/box"
    eventually(lambda: reader.get(path).code == 200, "the role counts")
    for what in ("exec?command=id&stdout=1", "attach?stdout=1", "portforward?ports=80"):
        answer = reader.get(f"{path}/{what}", headers=UPGRADE, timeout=5)
        assert answer.refusal[:2] == (403, "Forbidden"), what
        assert f'cannot create resource "pods/{what.split("?")[0]}"' in answer.refusal[2]
    shared.kubectl("create", "role", "run", "--verb=create,get", "--resource=pods/exec", "-n", ns)
    shared.kubectl("create", "rolebinding", "run", "--role=run", f"--serviceaccount={ns}:reader", "-n", ns)
    ask = f"{path}/exec?command=id&stdout=1"
    eventually(lambda: reader.get(ask, headers=UPGRADE, timeout=5).code == 101, "with create it is let through")
    other = Raw(shared, token=token).get(f"/api/v1/namespaces/{ns}/pods/nonsuch/exec?command=id", headers=UPGRADE)
    assert other.code == 404


def test_keys_and_kubeconfigs_are_for_root_alone(shared: Cluster) -> None:
    private = [
        path
        for top in ("etc/wherry", "var/lib/wherry/pki", "var/lib/wherry/control", "var/lib/kubelet/pki")
        for path in (shared.prefix / top).rglob("*")
        if path.is_file() and (path.suffix in (".key", ".kubeconfig", ".pem", ".db") or ".db-" in path.name)
    ]
    assert {"admin.kubeconfig", "agent.kubeconfig", "netproxy.kubeconfig", "ca.key", "sa.key", "apiserver.key"} <= {
        path.name for path in private
    }
    open_ = [str(path) for path in private if path.stat().st_mode & 0o077 and not _shut(path, shared.prefix)]
    assert open_ == []


def _shut(path: Path, top: Path) -> bool:
    """Return whether a folder above keeps everybody else out."""
    return any(
        not stat.S_IMODE(each.stat().st_mode) & 0o077 for each in path.parents if each != top and top in each.parents
    )


def test_names_cannot_climb_out_of_their_place(shared: Cluster, ns: str, admin: Raw) -> None:
    climbing = (
        f"/api/v1/namespaces/{ns}/pods/..",
        f"/api/v1/namespaces/{ns}/pods/%2e%2e",
        f"/api/v1/namespaces/{ns}/configmaps/..%2f..%2fsecrets",
        f"/api/v1/namespaces/{ns}/configmaps/a%2fb",
        "/api/v1/namespaces/../secrets",
        "/api/v1/namespaces/%2e%2e%2fkube-system/secrets",
        f"/api/v1/namespaces/{ns}/pods/./x",
    )
    for path in climbing:
        answer = admin.get(path)
        assert answer.code in (400, 404), (path, answer.text)
    for name in ("..", "a/b", "a%2fb", ".", "a\x00b"):
        answer = admin.post(f"/api/v1/namespaces/{ns}/configmaps", {"metadata": {"name": name}})
        assert answer.refusal[:2] == (422, "Invalid"), name
        put = admin.post("/apis/apps/v1/namespaces/..%2fkube-system/deployments", {"metadata": {"name": "x"}})
        assert put.code in (400, 404)
    volumes = [{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "../../etc/x"}]}}]
    answer = admin.post(f"/api/v1/namespaces/{ns}/pods", pod("climbs", volumes=volumes))
    assert answer.refusal[:2] == (422, "Invalid")
    assert "must not contain '..'" in answer.refusal[2]
    ask: dict[str, Any] = {"server": KUBELET, "options": ("-k",)}
    for path in ("/containerLogs/../../etc/passwd", f"/containerLogs/{ns}/..%2f..%2fetc/c", "/logs/../../etc/passwd"):
        assert admin.get(path, **ask).code in (400, 403, 404), path


def test_yaml_that_grows_is_refused(shared: Cluster, ns: str, admin: Raw) -> None:
    laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    deep = "data: " + "[" * 50_000
    for body in (f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\n{text}" for text in (laughs, deep)):
        answer = admin.send("POST", f"/api/v1/namespaces/{ns}/configmaps", body, content_type="application/yaml")
        assert answer.refusal[:2] == (400, "BadRequest")
    assert admin.get("/readyz").text == "ok"


def test_logs_are_not_read_through_links(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("talks", container("echo said; sleep 1000")))
    wait_running(shared, ns, "talks")
    eventually(lambda: logs(shared, ns, "talks") == "said\n", "the log")
    uid = shared.get("pod", "talks", "-n", ns)["metadata"]["uid"]
    (log,) = (shared.prefix / "var/log/pods").glob(f"{ns}_talks_{uid}/c/0.log")
    secret = shared.prefix / f"{ns}-secret"
    secret.write_text("2026-01-01T00:00:00.000000000Z stdout F the secret\n")
    log.unlink()
    log.symlink_to(secret)
    for options in ((), ("--tail=1",), ("--since=1h",)):
        done = shared.kubectl("logs", "talks", "-n", ns, *options, check=False)
        assert "the secret" not in done.stdout + done.stderr


def test_a_token_ends_with_what_it_is_bound_to(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("holder"))
    wait_running(shared, ns, "holder")
    token = execute(shared, ns, "holder", "cat /var/run/secrets/kubernetes.io/serviceaccount/token")
    holder = Raw(shared, token=token)
    path = f"/api/v1/namespaces/{ns}/pods"
    assert holder.get(path).refusal[:2] == (403, "Forbidden"), "it is known, and may not"
    shared.kubectl("delete", "pod", "holder", "-n", ns)
    eventually(lambda: holder.get(path).code == 401, "the token of a deleted pod is refused")
    apply(shared, ns, pod("holder"))
    wait_running(shared, ns, "holder")
    assert holder.get(path).code == 401, "a pod of the same name is another pod"

    shared.kubectl("create", "serviceaccount", "short", "-n", ns)
    loose = shared.kubectl("create", "token", "short", "-n", ns).stdout.strip()
    assert Raw(shared, token=loose).get(path).code == 403
    shared.kubectl("delete", "serviceaccount", "short", "-n", ns)
    eventually(lambda: Raw(shared, token=loose).get(path).code == 401, "the token of a deleted account is refused")
    foreign = shared.kubectl("create", "token", "default", "--audience=elsewhere", "-n", ns).stdout.strip()
    assert Raw(shared, token=foreign).get(path).code == 401, "a token for others"
    good = shared.kubectl("create", "token", "default", "-n", ns).stdout.strip()
    head, body, signature = good.split(".")
    swapped = "A" if signature[5] != "A" else "B"
    forged = f"{head}.{body}.{signature[:5]}{swapped}{signature[6:]}"
    assert Raw(shared, token=forged).get(path).code == 401
    # "none" as the algorithm, with the claims of a good token.
    assert Raw(shared, token=f"eyJhbGciOiJub25lIn0.{body}.").get(path).code == 401


def test_a_certificate_of_another_authority_proves_nothing(shared: Cluster, admin: Raw) -> None:
    folder = shared.prefix / "forged"
    folder.mkdir()
    subject = "/O=system:masters/CN=kubernetes-admin"
    shared.host.run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"),
        *("-subj", subject, "-keyout", str(folder / "key"), "-out", str(folder / "crt")),
    )
    forged = Raw(shared, anonymous=True)
    forged.identity = ["--cert", str(folder / "crt"), "--key", str(folder / "key")]
    for server in (forged.server, KUBELET):
        answer = forged.get("/api/v1/secrets" if server != KUBELET else "/pods", server=server, options=("-k",))
        assert answer.code in (0, 401), answer  # the handshake fails, or nobody is recognised
    assert admin.get("/api/v1/secrets").code == 200


def test_rights_cannot_be_given_that_one_does_not_have(shared: Cluster, ns: str) -> None:
    shared.kubectl("create", "rolebinding", "joe", "--clusterrole=admin", "--user=joe", "-n", ns)
    joe = "--as=joe"
    eventually(
        lambda: shared.kubectl("auth", "can-i", "create", "roles", "-n", ns, joe, check=False).stdout == "yes\n",
        "joe is the namespace's admin",
    )
    made = shared.kubectl("create", "role", "fine", "--verb=get", "--resource=pods", "-n", ns, joe)
    assert made.stdout == "role.rbac.authorization.k8s.io/fine created\n"
    refused = shared.kubectl("create", "role", "more", "--verb=*", "--resource=nodes", "-n", ns, joe, check=False)
    assert (
        'user "joe" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:'
        in (refused.stderr)
    )
    bind = ("create", "rolebinding", "up", "--clusterrole=cluster-admin", "--user=joe", "-n", ns, joe)
    assert "is attempting to grant RBAC permissions not currently held" in shared.kubectl(*bind, check=False).stderr
    other = Raw(shared).get(
        "/api/v1/nodes", headers={"Impersonate-User": "joe", "Impersonate-Group": "system:authenticated"}
    )
    assert other.code == 403
    token = shared.kubectl("create", "token", "default", "-n", ns).stdout.strip()
    answer = Raw(shared, token=token).get("/api/v1/nodes", headers={"Impersonate-User": "kubernetes-admin"})
    assert answer.refusal[:2] == (403, "Forbidden")
    assert "cannot impersonate-on:user-info:" in answer.refusal[2]


def test_pod_security_refuses_what_a_namespace_does_not_allow(shared: Cluster, ns: str) -> None:
    shared.kubectl("label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted")
    bad = container(securityContext={"privileged": True})
    done = shared.kubectl(
        "apply", "-n", ns, "-f", "-", input=json.dumps(pod("bad", bad, hostNetwork=True)), check=False
    )
    assert 'pods "bad" is forbidden: violates PodSecurity "restricted:latest": ' in done.stderr
    for what in ("host namespaces (hostNetwork=true)", "privileged (container", "runAsNonRoot != true"):
        assert what in done.stderr, done.stderr
    good = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    apply(shared, ns, pod("good", container(securityContext=good)))
    wait_running(shared, ns, "good")
    shared.kubectl("label", "namespace", ns, "pod-security.kubernetes.io/enforce=baseline", "--overwrite")
    empty = {"seccompProfile": {"type": "Localhost", "localhostProfile": ""}}
    done = shared.kubectl(
        "apply", "-n", ns, "-f", "-", input=json.dumps(pod("empty", container(securityContext=empty))), check=False
    )
    assert "seccompProfile.localhostProfile: Required value" in done.stderr


def test_addresses_that_lead_inside_are_refused(shared: Cluster, ns: str, admin: Raw) -> None:
    for address, where in (("127.0.0.1", "loopback range"), ("169.254.169.254", "link-local range")):
        slice_ = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "bad", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]}],
            "ports": [{"port": 80}],
        }
        answer = admin.post(f"/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices", slice_)
        assert answer.refusal[:2] == (422, "Invalid")
        assert where in answer.refusal[2]
    # A node that says it is at the loopback address would make the server talk to itself.
    admin.post("/api/v1/nodes", {"metadata": {"name": "liar"}})
    try:
        for address, where in (("127.0.0.1", "loopback range"), ("169.254.169.254", "link-local range")):
            status = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
            merge = "application/merge-patch+json"
            answer = admin.send("PATCH", "/api/v1/nodes/liar/status", status, content_type=merge)
            assert answer.refusal[:2] == (422, "Invalid")
            assert where in answer.refusal[2]
        for proxied in ("/api/v1/nodes/127.0.0.1:6443/proxy/healthz", "/api/v1/nodes/localhost/proxy/pods"):
            assert admin.get(proxied).code >= 400
    finally:
        admin.send("DELETE", "/api/v1/nodes/liar")


def test_seccomp_is_on_by_default(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("plain", container("grep Seccomp: /proc/self/status"), restartPolicy="Never"))
    wait_phase(shared, ns, "plain", "Succeeded")
    assert logs(shared, ns, "plain").split() == ["Seccomp:", "2"]


def _code(event: dict[str, Any]) -> int:
    code: int = event["responseStatus"]["code"]
    return code


def test_who_did_what_is_noted_from_the_start_and_controllers_are_themselves(shared: Cluster, ns: str) -> None:
    log = shared.prefix / "var/log/wherry/audit.log"
    account = "system:serviceaccount:kube-system:"
    components = (account, "system:kube-controller-manager", "system:kube-scheduler")
    shared.kubectl("-n", ns, "create", "deployment", "noted", "--image=none")

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in log.read_text().splitlines()]

    def made_by(*resources: str) -> set[str]:
        return {
            event["user"]["username"]
            for event in events()
            if event["verb"] == "create"
            and event.get("objectRef", {}).get("namespace") == ns
            and event["objectRef"]["resource"] in resources
            and "subresource" not in event["objectRef"]
        }

    eventually(lambda: made_by("pods") == {f"{account}replicaset-controller"}, "the pod's creation in the audit log")
    assert made_by("replicasets") == {f"{account}deployment-controller"}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert {event["level"] for event in events()} == {"Metadata"}
    refused = [
        (event["user"]["username"], event["verb"], event["requestURI"])
        for event in events()
        if event["user"].get("username", "").startswith(components)
        # Admission answers 403 too, to who makes pods in a namespace that is going.
        and (event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid" or _code(event) == 401)
    ]
    assert refused == []
