from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from control.admission import pod_security
from control.admission.pod_security import PodSecurity
from control.admission.pod_security_checks import violations
from control.event_loop import offload
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.lookup import Objects, attributes

SAFE = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(*containers: Object, **spec: Any) -> Object:
    found = list(containers) or [{"name": "c"}]
    return {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": found, **spec}}


def container(name: str = "c", **context: Any) -> Object:
    return {"name": name, "securityContext": context}


def shown(made: Object, level: str) -> str:
    return ", ".join(f"{v.reason} ({v.detail})" for v in violations(made, level))


@pytest.mark.parametrize(
    "made, detail",
    [
        (pod(), ""),
        (pod(hostNetwork=True, hostPID=True), "host namespaces (hostNetwork=true, hostPID=true)"),
        (pod(container(privileged=True)), 'privileged (container "c" must not set securityContext.privileged=true)'),
        (
            pod(container("a", privileged=True), container("b", privileged=True)),
            'privileged (containers "a", "b" must not set securityContext.privileged=true)',
        ),
        (
            pod(container(capabilities={"add": ["NET_ADMIN", "CHOWN", "SYS_TIME"]})),
            'non-default capabilities (container "c" must not include "NET_ADMIN", "SYS_TIME" '
            "in securityContext.capabilities.add)",
        ),
        (pod(volumes=[{"name": "root", "hostPath": {"path": "/"}}]), 'hostPath volumes (volume "root")'),
        (pod({"name": "c", "ports": [{"hostPort": 80}]}), 'hostPort (container "c" uses hostPort 80)'),
        (
            pod({"name": "a", "ports": [{"hostPort": 80}]}, {"name": "b", "ports": [{"hostPort": 81}]}),
            'hostPort (containers "a", "b" use hostPorts 80, 81)',
        ),
        (
            pod(container(procMount="Unmasked")),
            'procMount (container "c" must not set securityContext.procMount to "Unmasked")',
        ),
        (
            pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
            'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
        (
            pod(securityContext={"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_syncookies"}]}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            pod({"name": "c", "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 1}}}),
            'probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")',
        ),
        (
            pod(initContainers=[container("i", privileged=True)]),
            'privileged (container "i" must not set securityContext.privileged=true)',
        ),
        (
            pod(ephemeralContainers=[container("e", privileged=True)]),
            'privileged (container "e" must not set securityContext.privileged=true)',
        ),
    ],
)
def test_baseline_forbids_what_reaches_the_host(made: Object, detail: str) -> None:
    assert shown(made, "baseline") == detail
    assert violations(made, "privileged") == []


def test_restricted_requires_every_setting_with_upstreams_messages() -> None:
    assert shown(pod({"name": "nginx"}), "restricted") == (
        'allowPrivilegeEscalation != false (container "nginx" must set '
        "securityContext.allowPrivilegeEscalation=false), "
        'unrestricted capabilities (container "nginx" must set securityContext.capabilities.drop=["ALL"]), '
        'runAsNonRoot != true (pod or container "nginx" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or container "nginx" must set securityContext.seccompProfile.type to '
        '"RuntimeDefault" or "Localhost")'
    )
    assert violations(pod(container(**SAFE)), "restricted") == []


@pytest.mark.parametrize(
    "made, reasons",
    [
        (pod(container(**SAFE), volumes=[{"name": "v", "hostPath": {"path": "/"}}]), ["restricted volume types"]),
        (pod(container(**SAFE), volumes=[{"name": "v", "nfs": {}}]), ["restricted volume types"]),
        (pod(container(**SAFE), volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "image": {}}]), []),
        (pod(container(**SAFE | {"runAsUser": 0})), ["runAsUser=0"]),
        (pod(container(**SAFE | {"runAsNonRoot": False})), ["runAsNonRoot != true"]),
        (pod(container(**SAFE | {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}})), []),
        (
            pod(container(**SAFE | {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}})),
            ["unrestricted capabilities"],
        ),
        (pod(container(**SAFE), hostIPC=True), ["host namespaces"]),
    ],
)
def test_restricted_is_stricter_than_baseline(made: Object, reasons: list[str]) -> None:
    assert [v.reason for v in violations(made, "restricted")] == reasons


def test_pod_level_settings_apply_to_containers_without_their_own() -> None:
    quiet = container(**{k: SAFE[k] for k in ("allowPrivilegeEscalation", "capabilities")})
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert violations(pod(quiet, securityContext=context), "restricted") == []


def test_selinux_types_users_and_roles_are_named_together() -> None:
    made = pod(
        container("a", seLinuxOptions={"type": "spc_t", "user": "u"}),
        container("b", seLinuxOptions={"type": "other_t"}),
        container("c", seLinuxOptions={"type": "container_t"}),
    )
    assert shown(made, "baseline") == (
        'seLinuxOptions (containers "a", "b" set forbidden securityContext.seLinuxOptions: '
        'types "other_t", "spc_t"; user may not be set)'
    )


def test_root_in_a_user_namespace_of_its_own_is_no_root() -> None:
    rest = {k: v for k, v in SAFE.items() if k != "runAsNonRoot"}
    assert violations(pod(container(**rest, runAsUser=0), hostUsers=False), "restricted") == []


# -- the plugin -------------------------------------------------------------------------------------------------------
def namespace(**labels: str) -> Object:
    return {"metadata": {"name": "shop", "labels": {f"pod-security.kubernetes.io/{k}": v for k, v in labels.items()}}}


async def test_a_namespaces_level_is_enforced() -> None:
    plugin = PodSecurity(Objects(("namespaces", namespace(enforce="baseline"))))
    with pytest.raises(StatusError) as caught:
        await plugin.validate(attributes("pods", obj=pod(hostNetwork=True)))
    assert caught.value.code == 403
    assert caught.value.message == (
        'pods "web" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
    )
    await plugin.validate(attributes("pods", obj=pod()))


async def test_without_labels_everything_is_let_in() -> None:
    request = attributes("pods", obj=pod(container(privileged=True), hostNetwork=True))
    await PodSecurity(Objects(("namespaces", {"metadata": {"name": "shop"}}))).validate(request)
    assert request.warnings == []


async def test_pods_and_workloads_are_warned_about() -> None:
    plugin = PodSecurity(Objects(("namespaces", namespace(warn="baseline", **{"warn-version": "v1.30"}))))
    expected = ['would violate PodSecurity "baseline:v1.30": host namespaces (hostNetwork=true)']
    request = attributes("pods", obj=pod(hostNetwork=True))
    await plugin.validate(request)
    assert request.warnings == expected
    deployment = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": pod(hostNetwork=True)}}
    request = attributes("deployments.apps", obj=deployment)
    await plugin.validate(request)
    assert request.warnings == expected


async def test_a_pod_whose_spec_stays_is_not_looked_at_again() -> None:
    plugin = PodSecurity(Objects(("namespaces", namespace(enforce="restricted"))))
    await plugin.validate(attributes("pods", "UPDATE", pod(), pod()))
    with pytest.raises(StatusError):
        await plugin.validate(attributes("pods", "UPDATE", pod({"name": "other"}), pod()))


async def test_bad_labels_are_refused_and_stricter_ones_warn_of_what_is_there() -> None:
    plugin = PodSecurity(Objects(("pods", pod()), ("pods", pod() | {"metadata": {"name": "a", "namespace": "shop"}})))
    with pytest.raises(StatusError) as caught:
        await plugin.validate(attributes("namespaces", obj=namespace(enforce="strict")))
    assert caught.value.code == 422
    assert caught.value.message == (
        'Namespace "shop" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": '
        "must be one of privileged, baseline, restricted"
    )
    request = attributes("namespaces", "UPDATE", namespace(enforce="restricted"), namespace())
    await plugin.validate(request)
    assert request.warnings[0] == (
        'existing pods in namespace "shop" violate the new PodSecurity enforce level "restricted:latest"'
    )
    assert request.warnings[1].startswith("a (and 1 other pod): allowPrivilegeEscalation != false, ")


@pytest.mark.parametrize(
    "old, new, warned",
    [
        (("restricted", "v1.22"), ("restricted", "v1.23"), True),
        (("restricted", "v1.22"), ("baseline", "v1.23"), False),
        (("restricted", "v1.34"), ("restricted", "v1.22"), False),
        (("restricted", "v1.23"), ("restricted", "v1.23"), False),
        (("restricted", "v1.22"), ("privileged", "v1.23"), False),
    ],
)
async def test_another_version_warns_of_pods_that_it_refuses(
    old: tuple[str, str], new: tuple[str, str], warned: bool
) -> None:
    def labelled(level: str, version: str) -> Object:
        return namespace(**{"enforce": level, "enforce-version": version})

    plugin = PodSecurity(Objects(("pods", pod(container(**SAFE | {"runAsUser": 0})))))
    request = attributes("namespaces", "UPDATE", labelled(*new), labelled(*old))
    await plugin.validate(request)
    assert request.warnings == (
        [
            'existing pods in namespace "shop" violate the new PodSecurity enforce level "restricted:v1.23"',
            "web: runAsUser=0",
        ]
        if warned
        else []
    )


class Unlisted(Objects):
    """Pods that are never held all at once."""

    given = 0

    def list(self, target: str, namespace: str = "") -> Any:
        assert target != "pods"
        return super().list(target, namespace)

    def count(self, target: str, namespace: str) -> int:
        return sum(1 for _ in Objects.list(self, target, namespace))

    async def each(self, target: str, namespace: str) -> AsyncGenerator[tuple[Object, int]]:
        for obj in Objects.list(self, target, namespace):
            await asyncio.sleep(0)
            self.given += 1
            yield obj, 1


def existing(name: str, owner: str = "", **context: Any) -> tuple[str, Object]:
    owners = [{"uid": owner, "controller": True}] if owner else []
    made = pod(container(**SAFE | context))
    return "pods", made | {"metadata": {"name": name, "namespace": "shop", "ownerReferences": owners}}


async def stricter(objects: Objects, **more: Any) -> list[str]:
    request = attributes("namespaces", "UPDATE", namespace(enforce="restricted"), namespace())
    await PodSecurity(objects, **more).validate(request)
    return request.warnings


async def test_so_many_existing_pods_are_looked_at_one_of_each_controller_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_security, "MOST_PODS", 3)
    replicas = [existing(f"a{n}", "set", runAsUser=0) for n in range(4)]
    objects = Unlisted(*replicas, existing("b"), existing("c", "other", privileged=True))
    assert await stricter(objects) == [
        "new PodSecurity enforce level only checked against the first 3 of 6 existing pods",
        'existing pods in namespace "shop" violate the new PodSecurity enforce level "restricted:latest"',
        "a0: runAsUser=0",
        "c: privileged",
    ]
    assert objects.given <= 2 * 6
    monkeypatch.setattr(pod_security, "MOST_PODS", 6)
    warnings = await stricter(objects)
    assert warnings[1:] == ["a0 (and 3 other pods): runAsUser=0", "c: privileged"]


async def test_existing_pods_are_looked_at_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_security, "CHECK_SECONDS", 0)
    cut = "new PodSecurity enforce level only checked against the first 0 of 2 existing pods"
    assert await stricter(Unlisted(existing("a", runAsUser=0), existing("b"))) == [cut]


async def test_a_large_existing_pod_is_looked_at_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Large(Unlisted):
        async def each(self, target: str, namespace: str) -> AsyncGenerator[tuple[Object, int]]:
            async for obj, _ in super().each(target, namespace):
                yield obj, offload.LARGE

    threads, judge = set[int](), pod_security.violations
    monkeypatch.setattr(
        pod_security, "violations", lambda *given: (threads.add(threading.get_ident()), judge(*given))[1]
    )
    assert len(await stricter(Large(existing("a", runAsUser=0)))) == 2
    assert threads and threading.get_ident() not in threads


async def test_existing_pods_of_an_exempt_runtime_class_are_passed_over() -> None:
    configuration = {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "exemptions": {"runtimeClasses": ["vm"]},
    }
    target, made = existing("a", runAsUser=0)
    made["spec"]["runtimeClassName"] = "vm"
    assert await stricter(Unlisted((target, made)), configuration=configuration) == []
