"""Pulling from a real registry: policies, credentials, events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from kube import pki
from kube.clock import SYSTEM
from tests.support import images
from tests.support.cluster import Cluster, eventually
from tests.support.kube import events, wait_phase
from tests.support.pods import apply, container, pod, status_of, wait_running
from tests.support.registry import PASSWORD, USER, Registry, registry


@pytest.fixture(scope="module")
def public(shared: Cluster) -> Iterator[Registry]:
    with registry(shared, 5000) as made:
        made.push(images.busybox_of(made.host, "tools:1"))
        made.push(images.busybox_of(made.host, "tools:latest"))
        yield made


@pytest.fixture(scope="module")
def private(shared: Cluster) -> Iterator[Registry]:
    with registry(shared, 5001, private=True) as made:
        made.push(images.busybox_of(made.host, "secret:1"))
        yield made


def story(cluster: Cluster, ns: str, name: str) -> list[tuple[str, str]]:
    return [(e["reason"], e["message"]) for e in events(cluster, ns, name)]


def reasons(cluster: Cluster, ns: str, name: str) -> list[str]:
    return [reason for reason, _ in story(cluster, ns, name)]


def test_pull_policies_decide_when_the_registry_is_queried(shared: Cluster, ns: str, public: Registry) -> None:
    image = f"{public.host}/tools:1"
    present = (
        "Pulled",
        f'Container image "{image}" already present on machine and can be accessed by the pod',
    )

    def run(name: str, policy: str) -> list[tuple[str, str]]:
        apply(shared, ns, pod(name, container(image=image, imagePullPolicy=policy)))
        wait_running(shared, ns, name)
        eventually(lambda: {"Scheduled", "Started"} <= set(reasons(shared, ns, name)), "the story's end")
        # The scheduler writes apart from the node: its event may come later than it was made.
        return sorted(story(shared, ns, name), key=lambda reported: reported[0] != "Scheduled")

    apply(shared, ns, pod("never", container(image=image, imagePullPolicy="Never")))

    def refused() -> bool:
        waiting = status_of(shared, ns, "never")["state"]["waiting"]
        message = f'Container image "{image}" is not present with pull policy of Never'
        assert waiting == {"reason": "ErrImageNeverPull", "message": message}
        assert ("ErrImageNeverPull", message) in story(shared, ns, "never")
        assert ("Failed", "Error: ErrImageNeverPull") in story(shared, ns, "never")
        return True

    eventually(refused, "ErrImageNeverPull")
    assert "tools/manifests/1" not in re.sub(r".*(PUT|HEAD).*", "", public.requests)

    reported = run("first", "IfNotPresent")
    assert [reason for reason, _ in reported] == ["Scheduled", "Pulling", "Pulled", "Created", "Started"]
    assert reported[1][1] == f'Pulling image "{image}"'
    pulled = (
        rf'Successfully pulled image "{image}" in [\d.]+m?s \([\d.]+m?s including waiting\)\. Image size: \d+ bytes\.'
    )
    assert re.fullmatch(pulled, reported[2][1]), reported[2]
    assert present in run("second", "IfNotPresent")
    assert "Pulling" not in reasons(shared, ns, "second")
    always = run("third", "Always")
    assert [reason for reason, _ in always] == ["Scheduled", "Pulling", "Pulled", "Created", "Started"]
    assert re.fullmatch(pulled, always[2][1])
    eventually(lambda: "running" in status_of(shared, ns, "never")["state"], "Never runs once the image is there", 60)
    status = status_of(shared, ns, "third")
    assert status["image"] == image
    assert re.fullmatch(rf"{public.host}/tools@sha256:[0-9a-f]{{64}}", status["imageID"]), status

    def listed() -> bool:
        names = [name for each in shared.get("node", "node1")["status"]["images"] for name in each["names"]]
        return image in names

    eventually(listed, "the node's status lists the image", 60)


def test_the_default_policy_follows_the_tag(shared: Cluster, ns: str, public: Registry) -> None:
    digest = next(
        line.split()[2]
        for line in shared.ctr("--namespace", "push", "images", "list").splitlines()
        if line.startswith(f"{public.host}/tools:1 ")
    )
    apply(
        shared,
        ns,
        pod("latest", container(image=f"{public.host}/tools")),
        pod("tagged", container(image=f"{public.host}/tools:1")),
        pod("exact", container(image=f"{public.host}/tools@{digest}")),
    )
    wait_running(shared, ns, "latest", "tagged", "exact")
    policies = {
        p["metadata"]["name"]: p["spec"]["containers"][0]["imagePullPolicy"]
        for p in shared.get("pods", "-n", ns)["items"]
    }
    assert policies == {"latest": "Always", "tagged": "IfNotPresent", "exact": "IfNotPresent"}
    assert status_of(shared, ns, "exact")["imageID"].endswith(digest)


def test_what_the_registry_does_not_have_cannot_be_pulled(shared: Cluster, ns: str, public: Registry) -> None:
    image = f"{public.host}/tools:none"
    apply(shared, ns, pod("lost", container(image=image)))

    def failed() -> str | None:
        found = [m for r, m in story(shared, ns, "lost") if r == "Failed" and m.startswith("Failed to pull image")]
        return found[0] if found else None

    message = eventually(failed, "the failure's event")
    assert message.startswith(f'Failed to pull image "{image}": ')
    assert "not found" in message
    eventually(
        lambda: status_of(shared, ns, "lost")["state"]["waiting"]["reason"] == "ImagePullBackOff", "ImagePullBackOff"
    )
    public.push(images.busybox_of(*image.split("/", 1)))
    eventually(lambda: "running" in status_of(shared, ns, "lost")["state"], "it is tried again and is there", 60)


def test_credentials_come_from_pull_secrets_of_the_pod_or_its_account(
    shared: Cluster, ns: str, private: Registry
) -> None:
    image = f"{private.host}/secret:1"
    shared.kubectl(
        "create",
        "secret",
        "docker-registry",
        "good",
        f"--docker-server={private.host}",
        f"--docker-username={USER}",
        f"--docker-password={PASSWORD}",
        "-n",
        ns,
    )
    wrong = shared.prefix / f"{ns}-wrong.json"
    wrong.write_text(private.docker_config("nonsense"))
    shared.kubectl(
        "create",
        "secret",
        "generic",
        "bad",
        "--type=kubernetes.io/dockerconfigjson",
        f"--from-file=.dockerconfigjson={wrong}",
        "-n",
        ns,
    )
    requested = container(image=image, imagePullPolicy="Always")
    apply(
        shared,
        ns,
        pod("without", requested),
        pod("with-bad", requested, imagePullSecrets=[{"name": "bad"}]),
        pod("with-none", requested, imagePullSecrets=[{"name": "nonsuch"}]),
    )

    def refused(name: str) -> bool:
        found = [m for r, m in story(shared, ns, name) if r == "Failed" and m.startswith("Failed to pull image")]
        assert found, name
        assert any("authoriz" in m or "401" in m or "credentials" in m for m in found), found
        return True

    for name in ("without", "with-bad", "with-none"):
        eventually(lambda n=name: refused(n), f"{name} is refused")  # type: ignore[misc]
    missing = (
        "FailedToRetrieveImagePullSecret",
        "Unable to retrieve some image pull secrets (nonsuch); attempting to pull the image may not succeed.",
    )
    eventually(lambda: missing in story(shared, ns, "with-none"), "the secret that is not there is named")
    apply(shared, ns, pod("with-good", requested, imagePullSecrets=[{"name": "bad"}, {"name": "good"}]))
    wait_running(shared, ns, "with-good")
    eventually(
        lambda: any(m.startswith(f'Successfully pulled image "{image}"') for _, m in story(shared, ns, "with-good")),
        "the event of the pull",
    )
    patch = '{"imagePullSecrets":[{"name":"good"}]}'
    shared.kubectl("patch", "serviceaccount", "default", "-n", ns, "-p", patch)
    apply(shared, ns, pod("by-account", requested))
    wait_running(shared, ns, "by-account")
    assert shared.get("pod", "by-account", "-n", ns)["spec"]["imagePullSecrets"] == [{"name": "good"}]


def test_images_are_pulled_from_a_mirror_instead_of_its_registry(shared: Cluster, ns: str, public: Registry) -> None:
    public.push(images.busybox_of(public.host, "team/tools:1"))
    shared.up("--registry-mirror", f"registry.example=http://{public.host}")
    apply(shared, ns, pod("mirrored", container(image="registry.example/team/tools:1", imagePullPolicy="Always")))
    wait_running(shared, ns, "mirrored")
    assert "/v2/team/tools/manifests/1" in public.requests


@pytest.fixture
def configured(shared: Cluster) -> Iterator[Callable[[str], None]]:
    """Starts the cluster again with a configuration file, and at the end without one."""
    path = shared.prefix / "etc/wherry/config.yaml"

    def configure(text: str) -> None:
        path.write_text(text)
        path.chmod(0o600)
        shared.up()

    yield configure
    path.unlink(missing_ok=True)
    shared.up()


def test_a_node_has_the_credentials_of_its_configuration_file(
    shared: Cluster, ns: str, private: Registry, configured: Callable[[str], None]
) -> None:
    private.push(images.busybox_of(private.host, "configured:1"))
    requested = container(image=f"{private.host}/configured:1", imagePullPolicy="Always")
    configured(f"registries:\n  {private.host}: {{plain-http: true, username: {USER}, password: {PASSWORD}}}\n")
    apply(shared, ns, pod("with", requested))
    wait_running(shared, ns, "with")
    configured(f"registries:\n  {private.host}: {{plain-http: true}}\n")
    apply(shared, ns, pod("without", requested))
    eventually(lambda: "Failed" in reasons(shared, ns, "without"), "a failed pull")


@pytest.mark.parametrize("setting", ["ca", "insecure"])
def test_a_registry_with_a_certificate_of_its_own(
    shared: Cluster, ns: str, configured: Callable[[str], None], setting: str
) -> None:
    now = SYSTEM.now()
    authority = pki.new_ca("registry", now)
    tls = pki.issue(authority, "registry", usages=(pki.SERVER,), sans=[shared.host.address], now=now)
    with registry(shared, 5443, address=shared.host.address, tls=tls) as made:
        made.push(images.busybox_of(made.host, f"{setting}:1"))
        ca = made.folder / "ca.crt"
        ca.write_bytes(authority.cert_pem)
        configured(f"registries:\n  {made.host}: {{{f'ca: {ca}' if setting == 'ca' else 'insecure: true'}}}\n")
        apply(shared, ns, pod(setting, container(image=f"{made.host}/{setting}:1", imagePullPolicy="Always")))
        wait_running(shared, ns, setting)
        configured("{}")
        apply(shared, ns, pod("stranger", container(image=f"{made.host}/{setting}:1", imagePullPolicy="Always")))
        eventually(lambda: "certificate" in str(story(shared, ns, "stranger")), "a failed pull")


def test_a_new_image_under_the_same_tag_is_fetched_by_always(shared: Cluster, ns: str, public: Registry) -> None:
    name = f"{public.host}/moving:1"

    def version(number: int) -> images.Image:
        return images.Image(name, files={"version": f"{number}\n".encode()})

    show = {**container("cat /version", image=name, imagePullPolicy="Always")}
    for number in (1, 2):
        public.push(version(number))
        apply(shared, ns, pod(f"show-{number}", show, restartPolicy="Never"))
        wait_phase(shared, ns, f"show-{number}", "Succeeded")
        assert shared.kubectl("logs", f"show-{number}", "-n", ns).stdout == f"{number}\n"
    stale = {**container("cat /version", image=name, imagePullPolicy="IfNotPresent")}
    public.push(version(3))
    apply(shared, ns, pod("stale", stale, restartPolicy="Never"))
    wait_phase(shared, ns, "stale", "Succeeded")
    assert shared.kubectl("logs", "stale", "-n", ns).stdout == "2\n"


def test_a_bundle_carries_images_to_a_machine_without_a_registry(shared: Cluster, ns: str) -> None:
    name = "wherry.test/bundled:1"
    shared.load(images.busybox(name))
    path = shared.prefix / "images.bundle"
    path.unlink(missing_ok=True)
    digest = shared.wherry("bundle", "create", str(path), "--image", name).stdout.split()[-1]
    shared.wherry("image", "rm", name)
    refused = shared.wherry("bundle", "load", str(path), "--sha256", "0" * 64, check=False)
    assert refused.returncode == 1 and f"the bundle has the SHA-256 {digest}, not the one given" in refused.stderr
    assert name not in shared.wherry("image", "list").stdout
    assert name in shared.wherry("bundle", "load", str(path), "--sha256", digest).stdout
    apply(shared, ns, pod("bundled", container(image=name, imagePullPolicy="Never")))
    wait_running(shared, ns, "bundled")
