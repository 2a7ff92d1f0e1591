"""kubectl's commands beyond the daily ones, against the bare API server: each by what it left behind, or said."""

import base64
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.support import images
from tests.support.control import ApiUnderTest, api_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]
MANIFEST = (Path(images.__file__).parent / "manifest.yaml").read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        yield api


async def kubectl_output(server: ApiUnderTest, *arguments: str, input: str = "") -> str:
    return (await server.kubectl(*arguments, input=input)).stdout


async def get(server: ApiUnderTest, *what: str) -> dict:
    found: dict = json.loads(await kubectl_output(server, "get", *what, "-o", "json"))
    return found


async def refused(server: ApiUnderTest, *arguments: str, input: str = "") -> str:
    result = await server.kubectl(*arguments, input=input, check=False)
    assert result.returncode != 0, result.stdout
    return result.stderr


async def test_a_large_manifest_of_many_kinds_on_the_clients_and_on_the_servers_side(server: ApiUnderTest) -> None:
    created = await kubectl_output(server, "apply", "-f", "-", input=MANIFEST)
    kinds = MANIFEST.count("\nkind: ")
    assert created.count(" created\n") == kinds >= 18
    again = await kubectl_output(server, "apply", "-f", "-", input=MANIFEST)
    # stringData is never read back, and a selector that is replaced as a whole is always sent: kubectl says so anywhere.
    assert re.findall(r"(.*) configured\n", again) == ["secret/big-keys", "poddisruptionbudget.policy/big"]
    changed = MANIFEST.split("---")[0].replace('a: "1"', 'a: "9"')
    for side in ((), ("--server-side",)):
        differs = await server.kubectl("diff", *side, "-f", "-", input=changed, check=False)
        assert (
            differs.returncode == 1
            and '-  a: "1"\n+  a: "9"\n' in differs.stdout
            and differs.stdout.count("diff -u") == 1
        )
    for _ in range(2):
        applied = await kubectl_output(server, "apply", "--server-side", "-f", "-", input=MANIFEST)
        assert applied.count(" serverside-applied\n") == kinds
    clash = await refused(
        server, "apply", "--server-side", "--dry-run=server", "--field-manager=x", "-f", "-", input=changed
    )
    assert 'conflict with "kubectl": .data.a' in clash
    pruned = await kubectl_output(
        server,
        "apply",
        "--prune",
        "-l=app=big",
        "--prune-allowlist=core/v1/Secret",
        "-f",
        "-",
        input=MANIFEST.split("---")[0],
    )
    assert "secret/big-keys pruned\n" in pruned
    deleted = await kubectl_output(server, "delete", "--wait=false", "--ignore-not-found", "-f", "-", input=MANIFEST)
    assert len(re.findall(r" deleted(?: from default namespace)?\n", deleted)) == kinds - 1


async def test_set_changes_templates_selectors_and_subjects(server: ApiUnderTest) -> None:
    await kubectl_output(server, "create", "deployment", "s", "--image=a", "--port=80")
    await kubectl_output(server, "set", "image", "deployment/s", "*=b")
    await kubectl_output(server, "set", "resources", "deployment/s", "--limits=cpu=200m", "--requests=memory=1Mi")
    await kubectl_output(server, "set", "serviceaccount", "deployment/s", "robot")
    await kubectl_output(server, "create", "secret", "generic", "s", "--from-literal=pass-word=x")
    await kubectl_output(server, "set", "env", "deployment/s", "--from=secret/s", "--prefix=P_")
    spec = (await get(server, "deployment", "s"))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert (container["image"], spec["serviceAccountName"]) == ("b", "robot")
    assert container["resources"] == {"limits": {"cpu": "200m"}, "requests": {"memory": "1Mi"}}
    assert (
        container["env"][0]["name"] == "P_PASS_WORD" and container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "s"
    )
    await kubectl_output(server, "expose", "deployment", "s", "--port=8080", "--target-port=80", "--type=NodePort")
    await kubectl_output(server, "set", "selector", "service/s", "app=other")
    service = (await get(server, "service", "s"))["spec"]
    assert service["selector"] == {"app": "other"} and service["ports"][0]["targetPort"] == 80
    await kubectl_output(server, "create", "role", "s", "--verb=get", "--resource=pods/log")
    await kubectl_output(server, "create", "rolebinding", "s", "--role=s", "--user=a")
    await kubectl_output(server, "set", "subject", "rolebinding/s", "--serviceaccount=default:default")
    assert [s["kind"] for s in (await get(server, "rolebinding", "s"))["subjects"]] == ["User", "ServiceAccount"]


async def test_scale_autoscale_and_subresources(server: ApiUnderTest) -> None:
    await kubectl_output(server, "create", "deployment", "n", "--image=a")
    await kubectl_output(server, "scale", "deployment/n", "--current-replicas=1", "--replicas=3")
    assert "Expected replicas to be 7, was 3" in await refused(
        server, "scale", "deployment/n", "--current-replicas=7", "--replicas=1"
    )
    await kubectl_output(
        server, "patch", "deployment", "n", "--subresource=scale", "--type=merge", '-p={"spec":{"replicas":2}}'
    )
    patch = '{"status":{"replicas":1},"spec":{"replicas":9}}'
    await kubectl_output(server, "patch", "deployment", "n", "--subresource=status", "--type=merge", f"-p={patch}")
    found = await get(server, "deployment", "n")
    assert (found["spec"]["replicas"], found["status"]["replicas"]) == (2, 1)
    await kubectl_output(server, "autoscale", "deployment", "n", "--min=1", "--max=4", "--cpu-percent=70")
    scaler = (await get(server, "hpa", "n"))["spec"]
    assert scaler["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}


async def test_rights_are_reconciled_and_listed(server: ApiUnderTest) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    assert "reconciled" in await kubectl_output(server, "auth", "reconcile", "-f", "-", input=json.dumps(role))
    role["rules"] = [{"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}]
    await kubectl_output(server, "auth", "reconcile", "-f", "-", input=json.dumps(role))
    assert len((await get(server, "role", "r"))["rules"]) == 2, "what is there stays"
    await kubectl_output(server, "auth", "reconcile", "--remove-extra-permissions", "-f", "-", input=json.dumps(role))
    assert [r["resources"] for r in (await get(server, "role", "r"))["rules"]] == [["services"]]
    await kubectl_output(server, "create", "rolebinding", "r", "--role=r", "--user=eve")
    listed = await kubectl_output(server, "auth", "can-i", "--list", "--as=eve", "-n", "default")
    assert re.search(r"^services +\[\] +\[\] +\[list\]$", listed, re.M), listed
    assert "eve" in await kubectl_output(server, "auth", "whoami", "--as=eve", "--as-group=g")


async def test_certificates_are_approved_and_denied(server: ApiUnderTest) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    built = x509.CertificateSigningRequestBuilder().subject_name(name)
    request = built.sign(ec.generate_private_key(ec.SECP256R1()), SHA256()).public_bytes(Encoding.PEM)
    for requested in ("one", "two"):
        body = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": requested},
            "spec": {
                "request": base64.b64encode(request).decode(),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
            },
        }
        await kubectl_output(server, "create", "-f", "-", input=json.dumps(body))
    assert "two denied" in await kubectl_output(server, "certificate", "deny", "two")
    assert "one approved" in await kubectl_output(server, "certificate", "approve", "one")
    shown = (await kubectl_output(server, "get", "csr", "--no-headers")).splitlines()
    assert [line.split()[-1] for line in shown] == ["Approved", "Denied"]
    assert 'request "two" is already Denied' in await refused(server, "certificate", "approve", "two")
    assert re.search(r"Common Name: +jane", await kubectl_output(server, "describe", "csr", "one"))


async def test_lists_in_parts_columns_and_templates(server: ApiUnderTest) -> None:
    for number in range(5):
        await kubectl_output(server, "create", "configmap", f"part-{number}", f"--from-literal=n={5 - number}")
    await kubectl_output(server, "label", "configmaps", "--all", "part=yes")
    assert (await kubectl_output(server, "get", "cm", "-l", "part", "--chunk-size=2", "-o", "name")).count("part-") == 5
    columns = await kubectl_output(
        server, "get", "cm", "-l", "part", "--sort-by=.data.n", "-o", "custom-columns=N:.data.n", "--no-headers"
    )
    assert columns.split()[:5] == ["1", "2", "3", "4", "5"]
    template = "-o=go-template={{range .items}}{{.data.n}}{{end}}"
    assert (await kubectl_output(server, "get", "cm", "-l", "part", template)).startswith("54321")
    assert "part=yes" in await kubectl_output(server, "label", "--list", "configmap/part-1")
    assert "the object has been modified" in await refused(
        server, "annotate", "cm/part-1", "a=b", "--resource-version=1"
    )


async def test_kustomizations_apply_sets_and_what_was_applied_last(server: ApiUnderTest, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [cm.yaml]\nnamePrefix: pre-\nconfigMapGenerator: [{name: g, literals: [a=b]}]\n"
    )
    one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: b}\n"
    (tmp_path / "cm.yaml").write_text(one)
    assert (await kubectl_output(server, "apply", "-k", str(tmp_path))).count("created") == 2
    assert (await server.kubectl("diff", "-k", str(tmp_path), check=False)).returncode == 0
    assert "name: pre-cm" in await kubectl_output(server, "apply", "view-last-applied", "cm/pre-cm")
    changed = one.replace("cm}", "pre-cm}").replace("a: b", "a: c")
    await kubectl_output(server, "apply", "set-last-applied", "-f", "-", input=changed)
    assert "a: c" in await kubectl_output(server, "apply", "view-last-applied", "cm/pre-cm")
    assert (await kubectl_output(server, "delete", "-k", str(tmp_path))).count("deleted") == 2


async def test_raw_requests_nodes_and_tokens(server: ApiUnderTest) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "raw"}}
    path = "/api/v1/namespaces/default/configmaps"
    await kubectl_output(server, "create", "--raw", path, "-f", "-", input=json.dumps(body))
    await kubectl_output(
        server, "replace", "--raw", f"{path}/raw", "-f", "-", input=json.dumps({**body, "data": {"a": "b"}})
    )
    assert json.loads(await kubectl_output(server, "get", "--raw", f"{path}/raw"))["data"] == {"a": "b"}
    assert json.loads(await kubectl_output(server, "delete", "--raw", f"{path}/raw"))["status"] == "Success"
    await server.request("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    await kubectl_output(server, "taint", "nodes", "n1", "a=b:NoSchedule")
    assert "--overwrite is false" in await refused(server, "taint", "nodes", "n1", "a=b:NoSchedule")
    await kubectl_output(server, "taint", "nodes", "n1", "a=c:NoSchedule", "--overwrite")
    await kubectl_output(server, "cordon", "n1")
    spec = (await get(server, "node", "n1"))["spec"]
    assert spec["unschedulable"] and {"key": "a", "value": "c", "effect": "NoSchedule"} in spec["taints"]
    await kubectl_output(server, "taint", "nodes", "n1", "a:NoSchedule-")
    assert 'taint "zz" not found' in await refused(server, "taint", "nodes", "n1", "zz-")
    token = await kubectl_output(server, "create", "token", "default", "--duration=20m", "--audience=x")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["aud"] == ["x"] and claims["exp"] - claims["iat"] == 1200


async def test_everything_that_create_makes_is_taken(server: ApiUnderTest) -> None:
    for arguments in (
        "clusterrole c1 --aggregation-rule=a=b",
        "clusterrole c2 --verb=get --non-resource-url=/x/*",
        "clusterrolebinding c1 --clusterrole=c1 --group=g",
        "poddisruptionbudget p --selector=a=b --min-available=50%",
        "priorityclass pc --value=5 --description=x",
        "secret docker-registry dr --docker-username=u --docker-password=p --docker-server=s",
        "service clusterip headless --clusterip=None",
        "service externalname outside --external-name=a.example",
        "service loadbalancer lb --tcp=80:8080",
        "job j --image=x -- true",
        "cronjob cj --image=x --schedule=@hourly",
        "job from --from=cronjob/cj",
        "ingress tls --rule=a.example/=svc:80,tls=sec --class=c",
    ):
        assert " created" in await kubectl_output(server, "create", *arguments.split()), arguments
    unsupported = await refused(server, "create", "quota", "q", "--hard=services=1", "--scopes=NotTerminating")
    assert "unsupported scope applied to resource" in unsupported
    assert (await get(server, "job", "from"))["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
