"""Rows of docs/troubleshooting.md: each symptom is produced on a cluster, found by the row's command and mended by its fix.

Rows whose symptoms need another machine, minutes, or a broken kernel are marked on the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import images, limit_symptoms, machine_symptoms, node_symptoms
from tests.support.cluster import BUSYBOX, Cluster
from tests.support.pages import Shell
from tests.support.symptoms import Symptom, apply, claim, gateway, grant, load_balancer, once, pod, route, rows, walked
from tests.support.typed_pages import Reader

LB = "jsonpath={.status.loadBalancer.ingress[0].ip}"
ADDRESS = r"\d+\.\d+\.\d+\.\d+"


def runs(name: str) -> tuple[str, str]:
    return f"kubectl get pod {name}", "1/1 +Running"


def balanced(name: str) -> tuple[str, str]:
    return f"kubectl get service {name} -o {LB}", ADDRESS


def retyped(name: str, image: str = BUSYBOX) -> str:
    return f"kubectl set image pod/{name} c={image}"


def described(kind: str, name: str) -> str:
    return f"kubectl describe {kind} {name}"


def addon(name: str, damage: str, fix: str, finds: str) -> Symptom:
    """Describe an addon whose file has an owner or a mode that is refused."""
    file = f"$ADDONS/{name}.yaml"
    create = f"kubectl create configmap {name} --dry-run=client -o yaml >{name}.yaml"
    listed = ("wherry addons list", rf"{name}\.yaml +1 +Applied")
    return Symptom(
        f"{create} && {damage} {name}.yaml && cp -p {name}.yaml {file}", finds, f"{fix} {file}", listed, listed[0]
    )


def definition(group: str, plural: str, kind: str) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind}, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": spec,
    }


PODS: dict[str, Symptom] = {
    'Failed to pull image "…": …': Symptom(
        apply(pod("pulled", image="127.0.0.1:9/none:1")),
        "127.0.0.1:9",
        retyped("pulled"),
        runs("pulled"),
        values={"NAME": "pulled"},
    ),
    'Back-off pulling image "…"': Symptom(
        apply(pod("backed", image="127.0.0.1:9/none:2")),
        "Failed",
        retyped("backed"),
        runs("backed"),
        values={"NAME": "backed"},
    ),
    "images cannot be pulled: name a mirror": Symptom(
        apply(pod("offline", image="127.0.0.1:9/none:3")),
        "ErrImagePull|ImagePullBackOff",
        retyped("offline"),
        runs("offline"),
        seen="wherry status",
    ),
    'Container image "…" is not present with pull policy of Never': Symptom(
        apply(pod("never", image="wherry.test/late:1", container={"imagePullPolicy": "Never"})),
        BUSYBOX,
        "wherry image load late.tar",
        runs("never"),
        seen=described("pod", "never"),
    ),
    "Unable to retrieve some image pull secrets (…); attempting to pull the image may not succeed.": Symptom(
        apply(pod("secretive", image=BUSYBOX, imagePullSecrets=[{"name": "puller"}])),
        "(?s)^(?!.*puller)",
        "kubectl create secret docker-registry puller --docker-server=a --docker-username=b --docker-password=c",
        ("kubectl get secrets", "puller"),
        seen=described("pod", "secretive"),
    ),
    'couldn\'t parse image name "…"': Symptom(
        apply(pod("upper", image="docker.io/library/Upper:1")),
        "docker.io/library/Upper:1",
        retyped("upper"),
        runs("upper"),
        described("pod", "upper"),
        {"NAME": "upper"},
    ),
    "0/… nodes are available: …": Symptom(
        apply(pod("picky", nodeSelector={"disk": "ssd"})),
        "affinity/selector",
        "kubectl label node node1 disk=ssd",
        runs("picky"),
        values={"NAME": "picky"},
    ),
    "Back-off restarting failed container … in pod …": Symptom(
        apply(pod("crash", "echo no file; exit 1")),
        "no file",
        "kubectl delete pod crash --now && " + apply(pod("crash")),
        runs("crash"),
        seen=described("pod", "crash"),
        values={"NAME": "crash"},
    ),
    "waiting for first consumer to be created before binding": Symptom(
        apply(claim("early", "local-path")),
        "local-path",
        apply(pod("late", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "early"}}])),
        ("kubectl get pvc early", "Bound"),
        values={"NAME": "early"},
    ),
    "no persistent volumes available for this claim and no storage class is set": Symptom(
        apply(claim("classless", "")),
        "local-path",
        "kubectl delete pvc classless && " + apply(claim("classless", "local-path")),
        (described("pvc", "classless"), "StorageClass: +local-path"),
        seen=described("pvc", "classless"),
    ),
    'Usage of EmptyDir volume "…" exceeds the limit "…". ': Symptom(
        apply(
            pod(
                "greedy",
                "head -c 4000000 /dev/zero >/v/f; sleep 1000",
                container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            )
        ),
        "Evicted",
        "kubectl delete pod greedy --now && "
        + apply(
            pod(
                "greedy",
                "echo x >/v/f; sleep 1000",
                container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            )
        ),
        runs("greedy"),
        values={"NAME": "greedy"},
    ),
    "Pod ephemeral local storage usage exceeds the total limit of containers …. ": Symptom(
        apply(
            pod(
                "writer",
                "head -c 4000000 /dev/zero >/f; sleep 1000",
                container={"resources": {"limits": {"ephemeral-storage": "1Mi"}}},
            )
        ),
        "Evicted",
        "kubectl delete pod writer --now && "
        + apply(pod("writer", container={"resources": {"limits": {"ephemeral-storage": "9Mi"}}})),
        runs("writer"),
        values={"NAME": "writer"},
    ),
}
SERVICES: dict[str, Symptom] = {
    "is already used by …": Symptom(
        f"{apply(load_balancer('one', 8101))}\n{apply(load_balancer('two', 8101))}",
        "8101",
        "kubectl delete service one",
        balanced("two"),
        seen=described("service", "two"),
    ),
    "is a host port of …": Symptom(
        apply(pod("hostly", container={"ports": [{"containerPort": 80, "hostPort": 8102}]}))
        + "\nkubectl wait --for=condition=Ready pod/hostly && "
        + apply(load_balancer("hosted", 8102)),
        "hostPort: 8102",
        "kubectl delete pod hostly --now",
        balanced("hosted"),
        seen=described("service", "hosted"),
    ),
    "is that of … on the nodes": Symptom(
        apply(load_balancer("kubelet", 10250)),
        "port: 10250",
        """kubectl patch service kubelet -p '{"spec": {"ports": [{"port": 8103}, {"port": 10250, "$patch": "delete"}]}}'""",
        balanced("kubelet"),
        seen=described("service", "kubelet"),
        values={"NAME": "kubelet"},
    ),
    "is not one of the ports of load balancers, …": Symptom(
        apply(load_balancer("outside", 30999 - 1000)).replace("29999", "500"),
        "load-balancer-ports",
        "wherry up --load-balancer-ports 80,443,500,1024-29999",
        balanced("outside"),
        seen=described("service", "outside"),
        alone=True,
    ),
    "There are no available nodes for LoadBalancer": Symptom(
        "kubectl label node node1 node.kubernetes.io/exclude-from-external-load-balancers=true && "
        + apply(load_balancer("nowhere", 8104)),
        "exclude-from-external-load-balancers",
        "kubectl label node node1 node.kubernetes.io/exclude-from-external-load-balancers-",
        balanced("nowhere"),
        seen=described("service", "nowhere"),
        alone=True,
    ),
    "port …/… at … is in use by a program": Symptom(
        "busybox nc -ll -p 8105 & \nholder=$!; " + apply(load_balancer("program", 8105)),
        "8105",
        "kill $holder",
        balanced("program"),
        seen=described("service", "program"),
    ),
    "Repaired Service rules that other programs had changed": Symptom(
        "iptables -t nat -F KUBE-SERVICES",
        "Repaired",
        "true",  # the program that flushes is not run again
        ("iptables -t nat -S KUBE-SERVICES", "default/kubernetes"),
        values={"NAME": "node1"},
    ),
}
KEY = "openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=a -addext subjectAltName=DNS:a -keyout {0}.key -out {0}.crt"
SECRET = "kubectl create secret tls {0} --cert={0}.crt --key={0}.key"
ACCEPTED = r"ResolvedRefs\s+Status: +True|Status: +True\s+Type: +ResolvedRefs"


def https(secret: str) -> dict[str, Any]:
    return {"protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": [{"name": secret}]}}


GATEWAYS: dict[str, Symptom] = {
    "No ReferenceGrant permits the reference to Service … in namespace …": Symptom(
        apply(
            gateway("granted"),
            route("foreign", {"name": "granted"}, {"name": "kube-dns", "namespace": "kube-system", "port": 53}),
        ),
        "No resources found",
        apply(grant("kube-system")),
        (described("httproute", "foreign"), ACCEPTED),
        seen=described("httproute", "foreign"),
        values={"NAMESPACE": "kube-system"},
    ),
    "There is no Secret …/… of type kubernetes.io/tls": Symptom(
        apply(gateway("secure", **https("cert1"))),
        "(?s)^(?!.*cert1)",
        f"{KEY} && {SECRET}".format("cert1"),
        (described("gateway", "secure"), ACCEPTED),
        seen=described("gateway", "secure"),
    ),
    "Secret …/… has no valid certificate with its key": Symptom(
        f"{KEY.format('cert2')} && {KEY.format('other')} && "
        "kubectl create secret generic cert2 --type=kubernetes.io/tls "
        "--from-file=tls.crt=cert2.crt --from-file=tls.key=other.key && " + apply(gateway("mixed", **https("cert2"))),
        "Public-Key|Subject: CN",
        f"kubectl delete secret cert2 && {SECRET.format('cert2')}",
        (described("gateway", "mixed"), ACCEPTED),
        seen=described("gateway", "mixed"),
        command="openssl x509 -text -in cert2.crt",
    ),
    "listener allows HTTPRoutes in namespace …": Symptom(
        "kubectl create namespace edge && "
        + apply(gateway("edge", "edge"), route("inner", {"name": "edge", "namespace": "edge"})),
        "from: Same",
        apply(gateway("edge", "edge", allowedRoutes={"namespaces": {"from": "All"}})),
        (described("httproute", "inner"), r"Accepted\s+Status: +True|Status: +True\s+Type: +Accepted"),
        seen=described("httproute", "inner"),
        command="kubectl get gateway -n edge -o yaml",
    ),
}
WHERRY: dict[str, Symptom] = {
    "there is no option …": Symptom(
        "echo 'max-pod: 3' >$ETC/config.yaml",
        "config.yaml:1: ",
        "echo 'max-pods: 110' >$ETC/config.yaml",
        ("wherry config validate; rm -f $ETC/config.yaml", "valid"),
        alone=True,
    ),
    "… is damaged (…): remove it and run": Symptom(
        "echo '{' >$ETC/wherry.json",
        "wherry.json",
        "rm $ETC/wherry.json && wherry up $IDENTITY",
        ("wherry status", "node1: Ready"),
        seen="wherry status",
        alone=True,
    ),
    "--service-cidr …: this cluster has …, and running pods its addresses": Symptom(
        "true",
        "service-cidr: 10.96.0.0/12",
        "true",  # the option is left out
        ("wherry status", "node1: Ready"),
        seen="wherry up --service-cidr 10.97.0.0/16",
    ),
    "port …, wanted for …, is taken": Symptom(
        "busybox nc -ll -p 26443 & \nholder=$!",
        "26443",
        "kill $holder && wait $holder; true",
        ("wherry check --prefix $OTHER --api-port 26443", "."),
        seen="wherry up --prefix $OTHER --api-port 26443",
        alone=True,
    ),
    "the firewall chain … drops what pods send and get": Symptom(
        "nft add table ip fw && nft add chain ip fw forward '{type filter hook forward priority 5; policy drop;}'",
        "chain forward",
        "wherry check | grep -o 'nft insert rule.*accept' | sh -e",
        ("wherry check || true; nft delete table ip fw", "(?s)^(?!.*drops what pods)"),
        seen="wherry check",
        alone=True,
    ),
    "there is no cluster on this machine": Symptom(
        "mkdir -p $OTHER",
        "No such file",
        "true",  # the cluster of this test is such a fix
        ("wherry status", "node1: Ready"),
        seen="wherry down --prefix $OTHER",
        values={"/etc": "$OTHER/etc"},
    ),
    "there is no daemon … on this machine: use …": Symptom(
        "true", "netproxy", "true", ("wherry logs netproxy", "."), seen="wherry logs proxy"
    ),
    "… may be written by others than its owner: chmod go-w …": addon("loose", "chmod 666", "chmod go-w", "-rw-rw-rw-"),
    "… is owned by the account …: chown root …": addon("owned", "chown nobody", "chown root", "65534"),
    "the file has no object: remove the file to delete the addon's objects": Symptom(
        "touch $ADDONS/empty.yaml",
        "^$",
        "kubectl create configmap empty --dry-run=client -o yaml >$ADDONS/empty.yaml",
        ("wherry addons list", "empty.yaml +1 +Applied"),
        seen="wherry addons list",
        command="cat $ADDONS/empty.yaml",
    ),
    '…: no matches for kind "…" in version "…"': Symptom(
        'echo \'{"apiVersion": "a.example/v1", "kind": "Ship", "metadata": {"name": "s"}}\' >$ADDONS/ship.json',
        "(?s)^(?!.*a.example)",
        apply(definition("a.example", "ships", "Ship")),
        ("wherry addons list", "ship.json +1 +Applied"),
        seen="wherry addons list",
    ),
    "the bundle has the SHA-256 …, not the one given": Symptom(
        "wherry bundle create images.bundle late.tar",
        "not the one given",
        "true",
        (
            "wherry bundle load again.bundle --sha256 $(wherry bundle create again.bundle late.tar | grep -oE '[0-9a-f]{64}')",
            "late:1",
        ),
        seen=f"wherry bundle load images.bundle --sha256 {'0' * 64}",
        command=f"wherry bundle load images.bundle --sha256 {'0' * 64}",
    ),
    "… is only for root": Symptom(
        "true",
        "0",
        "true",
        ("sudo wherry config print", "max-pods|node-name"),
        seen="$AS_NOBODY kubectl --prefix $PREFIX get nodes",
    ),
}
ALL = {**PODS, **SERVICES, **GATEWAYS, **WHERRY, **limit_symptoms.SYMPTOMS}


@pytest.fixture(scope="module")
def shell(pages: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell with the variables of the commands above."""
    folder = tmp_path_factory.mktemp("reader")
    images.archive(folder / "late.tar", [images.busybox("wherry.test/late:1")])
    reader = Reader(pages, folder)
    made = reader.shell(
        ETC=str(pages.prefix / "etc/wherry"),
        ADDONS=str(pages.prefix / "var/lib/wherry/addons"),
        OTHER=str(folder / "other"),
        PREFIX=str(pages.prefix),
        AS_NOBODY=f"setpriv --reuid=65534 --clear-groups {sys.executable} -m wherry.main",
        IDENTITY=" ".join(pages.identity()),
        PYTHON=sys.executable,
        DNS=pages.get("service", "-n", "kube-system", "kube-dns")["spec"]["clusterIP"],
    )
    try:
        once(made, "mkdir -p $ADDONS")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def together(shell: Shell, pages: Cluster) -> dict[str, str]:
    """Walk all rows that disturb no others, and return what went wrong by message."""
    return walked(shell, {m: s for m, s in ALL.items() if not s.alone}, str(pages.prefix))


@pytest.mark.parametrize("message", [message for message, symptom in ALL.items() if not symptom.alone])
def test_a_symptom_is_found_and_mended_as_its_row_says(together: dict[str, str], message: str) -> None:
    assert message not in together, together[message]


@pytest.mark.parametrize("message", [message for message, symptom in ALL.items() if symptom.alone])
def test_a_symptom_that_disturbs_others_is_found_and_mended(shell: Shell, pages: Cluster, message: str) -> None:
    found = walked(shell, {message: ALL[message]}, str(pages.prefix))
    assert not found, found[message]


@pytest.mark.parametrize("group", node_symptoms.GROUPS)
def test_symptoms_of_a_node_are_found_and_mended_as_their_rows_say(shell: Shell, pages: Cluster, group: str) -> None:
    found = walked(shell, node_symptoms.GROUPS[group], str(pages.prefix))
    assert not found, "\n".join(f"{message}: {why}" for message, why in found.items())


def test_rows_without_a_test_are_marked_on_the_page() -> None:
    assert {message for message, row in rows().items() if row.tested} == {
        message.strip() for message in (*ALL, *machine_symptoms.SYMPTOMS, *node_symptoms.SYMPTOMS)
    }
