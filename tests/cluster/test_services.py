"""Services as clients meet them: affinity, node ports, headless names, refusals, hairpin."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.cluster import NODE, WEB_IMAGE, Cluster, eventually
from tests.support.host import ADDRESS
from tests.support.kube import ready_pods, wait_pods, web
from tests.support.pods import FOR_EVER, apply, container, execute, pod, wait_running


def answers(cluster: Cluster, address: str, count: int = 20) -> set[str]:
    return {cluster.http(address).split(" ")[0] for _ in range(count)}


def service(name: str, *ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    spec = {"selector": {"app": "web"}, "ports": list(ports) or [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def names(cluster: Cluster, ns: str) -> set[str]:
    return {p["metadata"]["name"] for p in ready_pods(cluster, ns, "app=web")}


def test_a_client_stays_with_one_pod_with_session_affinity(shared: Cluster, ns: str) -> None:
    address = web(shared, ns, 3)
    eventually(lambda: answers(shared, address) == names(shared, ns), "all answer")
    shared.kubectl("patch", "service", "web", "-n", ns, "-p", '{"spec":{"sessionAffinity":"ClientIP"}}')
    affinity = shared.get("service", "web", "-n", ns)["spec"]["sessionAffinityConfig"]
    assert affinity == {"clientIP": {"timeoutSeconds": 10800}}
    stuck = eventually(lambda: next(iter(a)) if len(a := answers(shared, address)) == 1 else None, "one answers")
    assert answers(shared, address) == {stuck}
    shared.kubectl("delete", "pod", stuck, "-n", ns, "--wait=false")
    wait_pods(shared, ns, "app=web", 3)

    def another() -> bool:
        found = answers(shared, address)
        assert len(found) == 1, found
        return not found & {stuck, ""}

    eventually(another, "another takes over")


def test_node_ports_answer_at_the_nodes_address_from_inside_and_outside(shared: Cluster, ns: str) -> None:
    web(shared, ns, 2)
    apply(shared, ns, service("ports", {"port": 80, "nodePort": 30034}, type="NodePort"))
    free = shared.kubectl("expose", "deployment", "web", "--name=any", "--port=80", "--type=NodePort", "-n", ns)
    assert free.stdout == "service/any exposed\n"
    chosen = shared.get("service", "any", "-n", ns)["spec"]["ports"][0]["nodePort"]
    assert 30000 <= chosen <= 32767
    for port in (30034, chosen):
        eventually(lambda p=port: answers(shared, f"{ADDRESS}:{p}") == names(shared, ns), "both answer")  # type: ignore[misc]
    outside = {
        shared.host.run("curl", "-sS", "--max-time", "3", f"http://{ADDRESS}:30034/", outside=True).stdout.split(" ")[0]
        for _ in range(20)
    }
    assert outside == names(shared, ns)
    taken = shared.kubectl(
        "apply",
        "-n",
        ns,
        "-f",
        "-",
        input=json.dumps(service("again", {"port": 80, "nodePort": 30034}, type="NodePort")),
        check=False,
    )
    assert "spec.ports[0].nodePort: Invalid value: 30034: provided port is already allocated" in taken.stderr
    table = shared.kubectl("get", "service", "ports", "-n", ns, "--no-headers").stdout
    assert re.fullmatch(r"ports +NodePort +10\.\S+ +<none> +80:30034/TCP +\d+s\n", table), table
    shared.kubectl("delete", "service", "ports", "-n", ns)
    eventually(
        lambda: shared.http(f"{ADDRESS}:30034", timeout=1) == "", "nobody answers at the port of a deleted Service"
    )


def test_a_headless_service_names_all_its_pods(shared: Cluster, ns: str) -> None:
    apply(shared, ns, service("web", {"name": "http", "port": 80}, clusterIP="None"))
    shared.kubectl("create", "deployment", "web", f"--image={WEB_IMAGE}", "--replicas=3", "-n", ns)
    apply(
        shared,
        ns,
        pod("member", hostname="nick", subdomain="web", labels={"app": "web"}),
        pod("client"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "alias"},
            "spec": {"type": "ExternalName", "externalName": f"web.{ns}.svc.cluster.local"},
        },
    )
    wait_running(shared, ns, "client", "member")
    pods = wait_pods(shared, ns, "app=web", 4)
    wanted = {p["status"]["podIP"] for p in pods}

    def lookup(name: str, kind: str = "a") -> str:
        return execute(shared, ns, "client", f"nslookup -type={kind} {name}", check=False)

    def addresses(name: str) -> set[str]:
        return set(re.findall(r"^Address: ([\d.]+)$", lookup(name), re.M))

    full = f"{ns}.svc.cluster.local"
    eventually(lambda: addresses(f"web.{full}") == wanted, "every pod's address")
    nick = next(p["status"]["podIP"] for p in pods if p["metadata"]["name"] == "member")
    eventually(lambda: addresses(f"nick.web.{full}") == {nick}, "the name of one")
    eventually(lambda: f"canonical name = web.{full}" in lookup(f"alias.{full}", "cname"), "the alias")
    eventually(lambda: addresses(f"alias.{full}") == wanted, "what the alias leads to")
    record = rf"service = 0 \d+ 80 nick\.web\.{re.escape(full)}"
    eventually(lambda: re.search(record, lookup(f"_http._tcp.web.{full}", "srv")), "the named port")
    back = f"name = nick.web.{full}"
    eventually(lambda: back in execute(shared, ns, "client", f"nslookup {nick}", check=False), "the name of an address")
    eventually(lambda: "NXDOMAIN" in lookup(f"nonsuch.{full}"), "a name that nobody has")
    assert execute(shared, ns, "client", "wget -q -O - http://nick.web || true") == "", "it serves nothing at :80"
    assert execute(shared, ns, "client", "wget -q -O - http://kubernetes.default:443 2>&1 || true") != ""


def test_a_service_with_nobody_behind_it_refuses_at_once(shared: Cluster, ns: str) -> None:
    apply(shared, ns, service("nobody", {"port": 80, "nodePort": 30035}, type="NodePort"), pod("client"))
    wait_running(shared, ns, "client")
    address = shared.get("service", "nobody", "-n", ns)["spec"]["clusterIP"]

    def refused(target: str) -> bool:
        done = shared.host.run("curl", "-sS", "--max-time", "5", f"http://{target}/", check=False)
        assert done.returncode == 7, (done.returncode, done.stderr)  # 7: could not connect; 28 would be a time-out
        return True

    eventually(lambda: refused(address), "refused at the ClusterIP")
    eventually(lambda: refused(f"{ADDRESS}:30035"), "refused at the node port")
    assert (
        "Connection refused"
        in shared.kubectl(
            "exec", "client", "-n", ns, "--", "wget", "-q", "-O", "-", "http://nobody", check=False
        ).stderr
    )
    apply(shared, ns, pod("somebody", {"name": "web", "image": WEB_IMAGE}, labels={"app": "web"}))
    eventually(lambda: shared.http(address) == "somebody v1", "somebody answers")
    shared.kubectl("delete", "pod", "somebody", "-n", ns)
    eventually(lambda: refused(address), "refused again")


def test_a_pod_reaches_itself_through_its_service_and_by_a_named_port(shared: Cluster, ns: str) -> None:
    ports = [{"name": "front", "containerPort": 8080}]
    serve = f"mkdir /www; echo me > /www/index.html; httpd -p 8080 -h /www; {FOR_EVER}"
    ask = {"name": "web", "port": 80, "targetPort": "front"}
    apply(shared, ns, pod("only", container(serve, ports=ports), labels={"app": "web"}), service("self", ask))
    wait_running(shared, ns, "only")
    address = shared.get("service", "self", "-n", ns)["spec"]["clusterIP"]
    eventually(lambda: shared.http(address) == "me", "the named port answers")
    assert execute(shared, ns, "only", "wget -q -O - http://self") == "me\n"


def test_external_ips_are_refused_and_local_traffic_stays(shared: Cluster, ns: str) -> None:
    refused = shared.kubectl(
        "apply", "-n", ns, "-f", "-", input=json.dumps(service("ext", externalIPs=["172.30.0.9"])), check=False
    )
    assert refused.returncode == 1
    assert 'services "ext" is forbidden: Use of external IPs is denied by admission control.' in refused.stderr
    web(shared, ns, 1)
    apply(
        shared,
        ns,
        service(
            "local",
            {"port": 80, "nodePort": 30036},
            type="NodePort",
            externalTrafficPolicy="Local",
            internalTrafficPolicy="Local",
        ),
    )
    eventually(lambda: answers(shared, f"{ADDRESS}:30036", 3) == names(shared, ns), "the local pod answers")
    assert shared.get("node", NODE)["status"]["addresses"][0] == {"type": "InternalIP", "address": ADDRESS}
