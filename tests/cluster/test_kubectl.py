"""Every daily command of kubectl, each answer by its content."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from typing import Any

import yaml

from tests.support.cluster import BUSYBOX, NODE, WEB_IMAGE, Cluster, eventually
from tests.support.following import Following
from tests.support.kube import events, ready_pods, wait_phase, wait_pods, web


def sleeper(
    cluster: Cluster, ns: str, name: str = "box", script: str = "trap exit TERM; while :; do sleep 1; done"
) -> None:
    cluster.kubectl("run", name, f"--image={BUSYBOX}", "-n", ns, "--", "sh", "-c", script)
    wait_phase(cluster, ns, name, "Running")


def test_the_server_reports_its_version_and_health(shared: Cluster) -> None:
    version = json.loads(shared.kubectl("version", "-o", "json").stdout)["serverVersion"]
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")
    ready = shared.kubectl("get", "--raw", "/readyz?verbose").stdout
    assert "[+]ping ok" in ready
    assert ready.endswith("readyz check passed\n")
    assert "Kubernetes control plane" in shared.kubectl("cluster-info").stdout


def test_who_am_i_and_what_may_i(shared: Cluster, ns: str) -> None:
    whoami = shared.kubectl("auth", "whoami", "-o", "json").stdout
    user = json.loads(whoami)["status"]["userInfo"]
    assert user["username"] == "kubernetes-admin"
    assert set(user["groups"]) == {"system:masters", "system:authenticated"}
    assert shared.kubectl("auth", "can-i", "create", "pods").stdout == "yes\n"
    reader = f"--as=system:serviceaccount:{ns}:default"
    assert shared.kubectl("auth", "can-i", "create", "pods", "-n", ns, reader, check=False).stdout == "no\n"
    shared.kubectl("create", "rolebinding", "edit", "--clusterrole=edit", f"--serviceaccount={ns}:default", "-n", ns)
    eventually(
        lambda: shared.kubectl("auth", "can-i", "create", "pods", "-n", ns, reader, check=False).stdout == "yes\n",
        "the binding counts",
    )
    assert "pods" in shared.kubectl("auth", "can-i", "--list", "-n", ns, reader).stdout


def test_api_resources_and_explain_describe_what_is_served(shared: Cluster) -> None:
    shown = shared.kubectl("api-resources").stdout
    assert re.search(r"^deployments +deploy +apps/v1 +true +Deployment$", shown, re.M)
    assert re.search(r"^nodes +no +v1 +false +Node$", shown, re.M)
    names = set(shared.kubectl("api-versions").stdout.split())
    assert {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "resource.k8s.io/v1"} <= names
    explained = shared.kubectl("explain", "pod.spec.containers.image").stdout
    assert "FIELD: image <string>" in explained
    assert "Container image name" in explained
    recursive = shared.kubectl("explain", "deployment.spec", "--recursive").stdout
    assert "progressDeadlineSeconds\t<integer>" in recursive


def test_describe_shows_pod_node_and_service(shared: Cluster, ns: str) -> None:
    address = web(shared, ns, 1)
    pod = ready_pods(shared, ns, "app=web")[0]
    name, ip = pod["metadata"]["name"], pod["status"]["podIP"]

    def is_described(what: tuple[str, ...], *lines: str) -> bool:
        described = shared.kubectl("describe", *what).stdout
        for line in lines:
            assert re.search(line, described), f"{line} not in\n{described}"
        return True

    wanted = (
        rf"Node: +{NODE}/",
        rf"IP: +{ip}",
        "QoS Class: +BestEffort",
        "Ready +True",
        "Controlled By: +ReplicaSet/web-",
        r"Normal +Scheduled +\S+ +default-scheduler +Successfully assigned ",
        r"Normal +Started +\S+ +kubelet +",
    )
    eventually(lambda: is_described(("pod", name, "-n", ns), *wanted), "the pod is described with its events")
    is_described(
        ("node", NODE), "KubeletReady", r"PodCIDR: +10\.244\.", "Container Runtime Version: +containerd://", f"{name} "
    )
    wanted = (rf"IP: +{address}", rf"Endpoints: +{ip}:80")
    eventually(
        lambda: is_described(("service", "web", "-n", ns), *wanted), "the Service is described with its endpoints"
    )


def test_logs_follow_previous_and_tail(shared: Cluster, ns: str) -> None:
    script = (
        "echo begin $(date +%s); n=0; while [ $n -lt 5 ]; do echo line $n; n=$((n+1)); done; sleep 2; echo end; exit 3"
    )
    shared.kubectl("run", "talker", f"--image={BUSYBOX}", "-n", ns, "--", "sh", "-c", script)
    wait_phase(shared, ns, "talker", "Running")
    followed = shared.kubectl("logs", "-f", "talker", "-n", ns).stdout
    assert re.fullmatch(r"begin \d+\nline 0\nline 1\nline 2\nline 3\nline 4\nend\n", followed), followed

    def restarted() -> bool:
        status = shared.get("pod", "talker", "-n", ns)["status"]["containerStatuses"][0]
        return status["restartCount"] >= 1

    eventually(restarted, "the container was started again")
    previous = shared.kubectl("logs", "--previous", "talker", "-n", ns).stdout
    assert previous.endswith("end\n")
    assert shared.kubectl("logs", "--previous", "--tail=2", "talker", "-n", ns).stdout == "line 4\nend\n"
    stamped = shared.kubectl("logs", "--previous", "--timestamps", "--limit-bytes=60", "talker", "-n", ns).stdout
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z begin", stamped), stamped


def test_exec_carries_output_input_and_exit_code(shared: Cluster, ns: str) -> None:
    sleeper(shared, ns)
    done = shared.kubectl("exec", "box", "-n", ns, "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr.startswith("err\n")
    echoed = shared.kubectl("exec", "-i", "box", "-n", ns, "--", "cat", input="hello\nworld\n").stdout
    assert echoed == "hello\nworld\n"
    big = shared.kubectl("exec", "box", "-n", ns, "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x").stdout
    assert len(big) == 3_000_000
    missing = shared.kubectl("exec", "box", "-n", ns, "--", "nonsense", check=False)
    assert missing.returncode != 0
    assert "nonsense" in missing.stderr


def test_an_interactive_shell_has_a_terminal_of_the_right_size(shared: Cluster, ns: str) -> None:
    sleeper(shared, ns)
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    argv = [*shared.host.enter, *shared.kubectl_argv("exec", "-it", "box", "-n", ns, "--", "sh")]
    process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    try:
        # The size is sent right after the start; the shell may be there before it.
        wait = b"while [ \"$(stty size)\" != '33 101' ]; do sleep 0.1; done; "
        os.write(master, wait + b"echo size is $(stty size); tty; exit 5\n")
        seen = b""
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            readable, _, _ = select.select([master], [], [], 0.2)
            if readable:
                try:
                    seen += os.read(master, 4096)
                except OSError:
                    break
        assert process.wait(30) == 5, seen
        assert b"size is 33 101" in seen, seen
        assert b"/dev/pts/" in seen, seen
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_port_forward_and_cp_and_attach(shared: Cluster, ns: str, tmp_path: object) -> None:
    web(shared, ns, 1)
    name = ready_pods(shared, ns, "app=web")[0]["metadata"]["name"]
    process = shared.host.popen(*shared.kubectl_argv("port-forward", f"pod/{name}", "18080:80", "-n", ns))
    try:
        answer = eventually(lambda: shared.http("127.0.0.1:18080"), "an answer through the forwarded port")
        assert answer.startswith(name)
        assert {shared.http("127.0.0.1:18080") for _ in range(5)} == {answer}
    finally:
        process.terminate()
        process.wait()
    shared.kubectl(
        "run", "ticker", f"--image={BUSYBOX}", "-n", ns, "--", "sh", "-c", "while :; do echo tick; sleep 0.2; done"
    )
    wait_phase(shared, ns, "ticker", "Running")
    process = shared.host.popen(*shared.kubectl_argv("attach", "ticker", "-n", ns))
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert lines.count("tick\n") >= 2, lines
    finally:
        process.terminate()
        process.wait()


def test_the_output_of_a_short_command_is_shown_although_it_ends_before_the_attach(shared: Cluster, ns: str) -> None:
    for number in range(3):
        output = shared.kubectl(
            *("run", f"short-{number}", "-n", ns, "-i", "--rm", "--restart=Never", f"--image={BUSYBOX}"),
            *("--", "echo", f"said {number}"),
        ).stdout
        assert f"said {number}\n" in output
    ended = shared.kubectl(
        *("run", "fails", "-n", ns, "-i", "--rm", "--restart=Never", f"--image={BUSYBOX}", "--", "sh", "-c", "exit 5"),
        check=False,
    )
    assert ended.returncode == 5


def test_ages_in_a_watch_go_on(shared: Cluster, ns: str) -> None:
    with Following(shared, "get", "pods", "-w", "-n", ns) as watch:
        time.sleep(2.5)  # longer than the second by which a clock may be behind before an age is called invalid
        sleeper(shared, ns)
        watch.until(lambda text: "Running" in text, "the running pod")
    assert "<invalid>" not in watch.text


def test_watches_print_changes_as_they_come(shared: Cluster, ns: str) -> None:
    nowhere = {"spec": {"nodeSelector": {"nobody": "has"}}}
    with (
        Following(shared, "get", "pods", "-w", "-n", ns) as pods,
        Following(shared, "get", "events", "--watch", "-n", ns) as watched_events,
    ):
        # kubectl says nothing when a watch is open: it is when something of its namespace is shown.
        shared.kubectl("run", "first", f"--image={WEB_IMAGE}", "-n", ns, f"--overrides={json.dumps(nowhere)}")
        pods.until(lambda text: "first " in text, "the watch of pods is open")
        watched_events.until(lambda text: "FailedScheduling" in text, "the watch of events is open")
        shared.kubectl("run", "one", f"--image={WEB_IMAGE}", "-n", ns)
        pods.until(lambda text: re.search(r"^one +1/1 +Running ", text, re.M), "the pod runs")
        shared.kubectl("delete", "pod", "one", "-n", ns)
        pods.until(lambda text: re.search(r"^one .* Terminating ", text, re.M), "the pod is about to go")

        def story(text: str) -> list[str] | None:
            found: list[str] = re.findall(r" (Scheduled|Pulled|Created|Started|Killing) +pod/one ", text)
            return found if len(found) >= 5 else None

        reasons = watched_events.until(story, "five events about the pod")
    statuses = re.findall(r"^one +\d/1 +(\S+) ", pods.text, re.M)
    assert statuses[0] == "Pending" and "ContainerCreating" in statuses
    # The scheduler writes apart from the node.
    assert sorted(reasons) == ["Created", "Killing", "Pulled", "Scheduled", "Started"]
    assert [reason for reason in reasons if reason != "Scheduled"] == ["Pulled", "Created", "Started", "Killing"]


def test_run_label_annotate_edit_and_patch_change_their_object(shared: Cluster, ns: str) -> None:
    shared.kubectl("create", "configmap", "settings", "--from-literal=a=1", "-n", ns)
    shared.kubectl("label", "configmap", "settings", "tier=front", "-n", ns)
    shared.kubectl("annotate", "configmap", "settings", "note=hello there", "-n", ns)
    editor = 'sed -i \'s/a: "1"/a: "2"/\''
    argv = shared.kubectl_argv("edit", "configmap", "settings", "-n", ns)
    shared.host.run(*argv, env={"KUBE_EDITOR": editor})
    shared.kubectl("patch", "configmap", "settings", "-n", ns, "--type=merge", "-p", '{"data":{"b":"3"}}')
    shared.kubectl(
        "patch", "configmap", "settings", "-n", ns, "--type=json", "-p", '[{"op":"add","path":"/data/c","value":"4"}]'
    )
    found = shared.get("configmap", "settings", "-n", ns)
    assert found["data"] == {"a": "2", "b": "3", "c": "4"}
    assert found["metadata"]["labels"] == {"tier": "front"}
    assert found["metadata"]["annotations"]["note"] == "hello there"
    assert (
        shared.get("configmaps", "-n", ns, "-l", "tier in (front,back)")["items"][0]["metadata"]["name"] == "settings"
    )
    assert shared.get("configmaps", "-n", ns, "-l", "tier=back")["items"] == []
    shared.kubectl("label", "configmap", "settings", "tier-", "-n", ns)
    assert "labels" not in shared.get("configmap", "settings", "-n", ns)["metadata"]


MANIFEST = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: page, labels: {{part: front}}}}
data: {{index.html: "one"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: site}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: site}}}}
  template:
    metadata: {{labels: {{app: site}}}}
    spec:
      containers:
      - name: web
        image: {WEB_IMAGE}
        env: [{{name: A, value: "1"}}, {{name: B, value: "2"}}]
        ports: [{{containerPort: 80, name: http}}]
---
apiVersion: v1
kind: Service
metadata: {{name: site}}
spec:
  selector: {{app: site}}
  ports: [{{port: 80, targetPort: http}}]
"""


def test_apply_on_the_client_and_on_the_server(shared: Cluster, ns: str) -> None:
    first = shared.kubectl("apply", "-n", ns, "-f", "-", input=MANIFEST).stdout
    assert "deployment.apps/site created" in first
    again = shared.kubectl("apply", "-n", ns, "-f", "-", input=MANIFEST).stdout
    assert again == "configmap/page unchanged\ndeployment.apps/site unchanged\nservice/site unchanged\n"
    shared.kubectl("scale", "deployment", "site", "--replicas=2", "-n", ns)
    changed = MANIFEST.replace('{name: A, value: "1"}, ', "").replace('"2"', '"5"').replace("  replicas: 1\n", "")
    shared.kubectl("apply", "-n", ns, "-f", "-", input=changed)
    deployment = shared.get("deployment", "site", "-n", ns)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "B", "value": "5"}]
    wait_pods(shared, ns, "app=site", deployment["spec"]["replicas"])

    other = MANIFEST.split("---")[0].replace("page", "other")
    assert "serverside-applied" in shared.kubectl("apply", "--server-side", "-n", ns, "-f", "-", input=other).stdout
    managers = shared.get("configmap", "other", "-n", ns, "--show-managed-fields")["metadata"]["managedFields"]
    assert [(m["manager"], m["operation"]) for m in managers] == [("kubectl", "Apply")]
    theirs = other.replace('"one"', '"two"')
    argv = ("apply", "--server-side", "--field-manager=rival", "-n", ns, "-f", "-")
    refused = shared.kubectl(*argv, input=theirs, check=False)
    assert refused.returncode == 1
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .data.index.html' in refused.stderr
    shared.kubectl(
        "apply", "--server-side", "--field-manager=rival", "--force-conflicts", "-n", ns, "-f", "-", input=theirs
    )
    assert shared.get("configmap", "other", "-n", ns)["data"] == {"index.html": "two"}
    gone = other.replace('data: {index.html: "one"}', "data: {}")
    shared.kubectl("apply", "--server-side", "-n", ns, "-f", "-", input=gone)
    assert shared.get("configmap", "other", "-n", ns)["data"] == {"index.html": "two"}, "it belongs to the rival now"
    deleted = shared.kubectl("delete", "-n", ns, "-f", "-", input=MANIFEST).stdout
    assert 'deployment.apps "site" deleted' in deleted


def test_output_forms_agree(shared: Cluster, ns: str) -> None:
    shared.kubectl("create", "secret", "generic", "pair", "--from-literal=user=me", "-n", ns)
    as_json = shared.get("secret", "pair", "-n", ns)
    as_yaml = yaml.safe_load(shared.kubectl("get", "secret", "pair", "-o", "yaml", "-n", ns).stdout)
    assert as_json == as_yaml
    path = shared.kubectl("get", "secret", "pair", "-n", ns, "-o", "jsonpath={.data.user}").stdout
    assert path == "bWU="
    assert shared.kubectl("get", "secret", "pair", "-n", ns, "-o", "name").stdout == "secret/pair\n"
    assert re.search(r"^pair +Opaque +1 +\d+s$", shared.kubectl("get", "secrets", "-n", ns).stdout, re.M)


def test_events_report_the_steps_of_a_deployment(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    pod = ready_pods(shared, ns, "app=web")[0]["metadata"]["name"]
    replicaset = pod.rpartition("-")[0]

    def one(name: str) -> dict[str, Any]:
        (found,) = eventually(lambda: events(shared, ns, name), f"the event about {name}")
        return found

    scaled = one("web")
    assert scaled["reason"] == "ScalingReplicaSet"
    assert scaled["message"] == f"Scaled up replica set {replicaset} from 0 to 1"
    assert scaled["source"]["component"] == "deployment-controller"
    created = one(replicaset)
    assert (created["reason"], created["message"]) == ("SuccessfulCreate", f"Created pod: {pod}")
    assert created["source"]["component"] == "replicaset-controller"

    def whole() -> list[dict[str, object]] | None:
        found = events(shared, ns, pod)
        return found if len(found) >= 4 else None

    # The scheduler writes apart from the node: its event may come later than it was made.
    story = sorted(eventually(whole, "four events about the pod"), key=lambda e: e["reason"] != "Scheduled")
    assert [e["reason"] for e in story] == ["Scheduled", "Pulled", "Created", "Started"]
    assert story[0]["message"] == f"Successfully assigned {ns}/{pod} to {NODE}"
    assert story[0]["reportingComponent"] == "default-scheduler"
    assert (
        story[1]["message"]
        == f'Container image "{WEB_IMAGE}" already present on machine and can be accessed by the pod'
    )
    assert {e["source"]["component"] for e in story[1:]} == {"kubelet"}  # type: ignore[index]
    assert {e["source"]["host"] for e in story[1:]} == {NODE}  # type: ignore[index]


def test_an_unschedulable_pod_reports_the_reason(shared: Cluster, ns: str) -> None:
    overrides = {"spec": {"containers": [{"name": "big", "image": BUSYBOX, "resources": {"requests": {"cpu": "500"}}}]}}
    shared.kubectl("run", "big", f"--image={BUSYBOX}", "-n", ns, f"--overrides={json.dumps(overrides)}")

    def scheduling_failure() -> str | None:
        found = [e["message"] for e in events(shared, ns, "big") if e["reason"] == "FailedScheduling"]
        return found[0] if found else None

    message = eventually(scheduling_failure, "a FailedScheduling event")
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu. "), message

    def noted() -> bool:
        scheduled = shared.get("pod", "big", "-n", ns)["status"]["conditions"][0]
        found = (scheduled["type"], scheduled["status"], scheduled.get("reason"), scheduled.get("message"))
        return found == ("PodScheduled", "False", "Unschedulable", message)

    eventually(noted, "the pod's condition says the same")
