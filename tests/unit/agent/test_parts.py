"""The small rules: environment, names, credentials, QoS, DNS, hosts, security, configuration, admission."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from agent import configure, limiter
from agent.backoff import BackOff
from agent.cgroups import qos
from agent.flags import Flags
from agent.images import names as image_names
from agent.images import registry_auth
from agent.kubelet_configuration import ConfigError, parse
from agent.limiter import Limiter
from agent.podspec import dns, environment, hosts, security
from agent.usage.exposition import Text
from kube import duration
from kube.api import core_v1, meta_v1
from tests.unit.agent.pods import pod

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


# -- environment ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1y2z"),
        ("$$(A)", "$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$A", "$A"),
        ("$", "$"),
        ("$$", "$"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$$$(A)", "$1"),
    ],
)
def test_references_are_expanded_as_upstream_does(text: str, expanded: str) -> None:
    assert environment.expand(text, {"A": "1", "B": "2"}) == expanded


class Objects:
    def __init__(self, maps: dict[str, dict[str, str]], secrets: dict[str, dict[str, str]]) -> None:
        self.maps, self.secrets = maps, secrets

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        return core_v1.ConfigMap(data=self.maps[name]) if name in self.maps else None

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        if name not in self.secrets:
            return None
        return core_v1.Secret(data={k: base64.b64encode(v.encode()).decode() for k, v in self.secrets[name].items()})


def _env(container: dict[str, Any], **services: str) -> dict[str, str]:
    given = pod({"name": "main", **container})
    around = environment.EnvironmentSources(Objects({"m": {"K": "v"}}, {"s": {"P": "w"}}), services)
    return environment.environment(given, given.spec.containers[0], around)


def test_env_wins_over_env_from_which_wins_over_services() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}, "prefix": "S_"}],
        "env": [{"name": "K", "value": "own $(S_P) $(WEB_PORT)"}],
    }
    found = _env(container, K="service", WEB_PORT="80", OTHER="x")
    assert found == {"S_P": "w", "K": "own w 80", "WEB_PORT": "80", "OTHER": "x"}


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "no"}}]}, 'configmap "no" not found'),
        ({"envFrom": [{"secretRef": {"name": "no"}}]}, 'secret "no" not found'),
        (
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "no"}}}]},
            "couldn't find key no in ConfigMap default/m",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no"}}}]},
            "couldn't find key no in Secret default/s",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.no"}}}]},
            "unsupported fieldPath: spec.no",
        ),
        (
            {
                "env": [
                    {
                        "name": "X",
                        "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k", "optional": True}},
                    }
                ]
            },
            "variable X: this kubelet does not support fileKeyRef .EnvFiles.",
        ),
    ],
)
def test_what_is_missing_is_named(container: dict[str, Any], message: str) -> None:
    with pytest.raises(environment.ContainerConfigError, match=f"^{message.replace('(', '.').replace(')', '.')}$"):
        _env(container)


def test_services_of_the_namespace_become_variables_in_both_forms() -> None:
    def service(name: str, namespace: str, address: str, *ports: tuple[str, int]) -> core_v1.Service:
        return core_v1.Service(
            metadata=meta_v1.ObjectMeta(name=name, namespace=namespace),
            spec=core_v1.ServiceSpec(
                cluster_ip=address, ports=[core_v1.ServicePort(name=n or None, port=p) for n, p in ports]
            ),
        )

    services = [
        service("kubernetes", "default", "10.96.0.1", ("https", 443)),
        service("my-web", "shop", "10.96.0.7", ("http", 80)),
        service("headless", "shop", "None", ("", 1)),
        service("other", "elsewhere", "10.96.0.8", ("", 1)),
    ]
    found = environment.service_variables(environment.linked_services(services, "shop", True))
    assert found["MY_WEB_SERVICE_HOST"] == "10.96.0.7" and found["MY_WEB_SERVICE_PORT_HTTP"] == "80"
    assert found["MY_WEB_PORT_80_TCP"] == found["MY_WEB_PORT"] == "tcp://10.96.0.7:80"
    assert found["KUBERNETES_SERVICE_PORT"] == "443" and not any(k.startswith(("HEADLESS", "OTHER")) for k in found)
    assert set(environment.service_variables(environment.linked_services(services, "shop", False))) == {
        k for k in found if k.startswith("KUBERNETES")
    }


# -- images -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("busybox", "busybox:latest"),
        ("busybox:1", "busybox:1"),
        ("a.example:5000/x/y", "a.example:5000/x/y:latest"),
        ("x@sha256:" + "a" * 64, "x@sha256:" + "a" * 64),
    ],
)
def test_a_tag_is_meant_where_none_is_given(image: str, full: str) -> None:
    assert image_names.with_default_tag(image) == full


@pytest.mark.parametrize("image", ["", "Upper", "a//b", "x:", "x:-", "-x", "a b", "x@sha256:1", "../x"])
def test_bad_image_names_are_refused(image: str) -> None:
    with pytest.raises(image_names.InvalidImageName):
        image_names.with_default_tag(image)


def test_credentials_match_by_host_port_and_path_the_longest_first() -> None:
    auths = {
        "https://reg.example": {"username": "host", "password": "1"},
        "reg.example/team": {"auth": base64.b64encode(b"team:2").decode()},
        "*.wild.example:5000": {"username": "wild", "password": "3"},
        "https://index.docker.io/v1/": {"username": "hub", "password": "4"},
    }
    data = {".dockerconfigjson": base64.b64encode(json.dumps({"auths": auths}).encode()).decode()}
    known = registry_auth.credentials(
        [core_v1.Secret(type="kubernetes.io/dockerconfigjson", data=data), core_v1.Secret(type="Opaque", data=data)]
    )

    def users(image: str) -> list[str]:
        return [c.username for c in registry_auth.matching(image, known)]

    assert users("reg.example/team/app:1") == ["team", "host"]
    assert users("reg.example/other") == ["host"]
    assert users("a.wild.example:5000/x") == ["wild"] and users("a.b.wild.example:5000/x") == []
    assert users("a.wild.example/x") == []
    assert users("busybox") == users("library/busybox") == ["hub"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.3504, "350ms"), (1.2, "1.2s"), (10, "10s"), (80, "1m20s"), (300, "5m0s")]
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert duration.render(seconds) == text


# -- back-off ---------------------------------------------------------------------------------------------------------
def test_a_back_off_doubles_to_its_limit_and_resets_after_ten_quiet_minutes() -> None:
    back_off = BackOff(10.0, 300.0)
    assert back_off.ready_at("a", 5.0) == 5.0  # the first restart is at once
    delays = [back_off.next("a", float(at)) for at in range(8)]
    assert delays == [10, 20, 40, 80, 160, 300, 300, 300]
    assert back_off.ready_at("a", 100.0) == 400.0
    assert back_off.ready_at("a", 608.0) == 608.0
    assert back_off.next("a", 608.0) == 10


async def test_a_limiter_serves_the_lowest_number_first_and_frees_what_is_cancelled() -> None:
    one = Limiter(1)
    order: list[str] = []

    async def work(name: str, priority: int) -> None:
        async with one.slot(priority):
            order.append(name)
            await asyncio.sleep(0)

    async with one.slot(0):
        tasks = [asyncio.create_task(work(n, p)) for n, p in (("late", 2), ("cancelled", 0), ("early", 0))]
        await asyncio.sleep(0)
        tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["early", "late"]
    async with one.slot(0):
        pass


async def test_a_limiter_lends_the_places_of_those_who_hold_them_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "SLOT_SECONDS", 0.02)
    two, hung = Limiter(2), asyncio.Event()
    under_way = most = 0

    async def hang() -> None:
        async with two.slot(1):
            await hung.wait()

    async def work() -> None:
        nonlocal under_way, most
        async with two.slot(0):
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1

    hanging = [asyncio.create_task(hang()) for _ in range(9)]
    async with asyncio.timeout(5):
        await asyncio.gather(*(work() for _ in range(20)))
        assert most <= 2
        while two.slots_lent < 9:
            await asyncio.sleep(0.01)
        text = Text()
        two.write(text)
        assert "wherry_runtime_calls_held_long 9" in str(text) and "wherry_runtime_calls_waiting 0" in str(text)
        hung.set()
        await asyncio.gather(*hanging)
        await asyncio.gather(*(work() for _ in range(20)))
    assert (two.slots_lent, two.free, most) == (0, 2, 2)


# -- resources --------------------------------------------------------------------------------------------------------
def _sized(limits: dict[str, str] | None = None, requests: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": limits or {}, "requests": requests or {}}}


@pytest.mark.parametrize(
    ("containers", "found"),
    [
        ([_sized()], "BestEffort"),
        ([_sized({"cpu": "1", "memory": "1Gi"})], "Guaranteed"),
        ([_sized({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"})], "Guaranteed"),
        ([_sized({"cpu": "1"})], "Burstable"),
        ([_sized(None, {"cpu": "1m"})], "Burstable"),
        ([_sized({"cpu": "1", "memory": "1Gi"}), {"name": "b"}], "Burstable"),
        ([_sized({"ephemeral-storage": "1Gi"})], "BestEffort"),
    ],
)
def test_the_qos_class(containers: list[Any], found: str) -> None:
    assert qos.qos_class(pod(*containers)) == found


def test_a_pod_requests_the_most_that_it_needs_at_any_time() -> None:
    def sized(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    side = sized("side", "100m", restartPolicy="Always")
    assert qos.pod_request(pod(sized("a", "200m"), sized("b", "300m"), init=[side]), "cpu") == 600
    assert qos.pod_request(pod(sized("a", "200m"), init=[side, sized("i", "1")]), "cpu") == 1100
    assert (
        qos.pod_request(pod(sized("a", "200m"), init=[sized("i", "1"), side], overhead={"cpu": "50m"}), "cpu") == 1050
    )
    assert qos.pod_limit(pod(_sized({"memory": "1Gi"}), "b"), "memory") == 0


@pytest.mark.parametrize(("milli", "shares"), [(0, 2), (1, 2), (250, 256), (1000, 1024), (1_000_000, 262144)])
def test_cpu_requests_become_shares(milli: int, shares: int) -> None:
    assert qos.cpu_shares(milli) == shares


def test_out_of_memory_scores_rank_by_class_and_request() -> None:
    def score(given: core_v1.Pod) -> int:
        return qos.oom_score_adj(given, given.spec.containers[0], 1000 << 20)

    assert score(pod()) == 1000
    assert score(pod(_sized({"cpu": "1", "memory": "100Mi"}))) == -997
    assert score(pod(_sized(None, {"memory": "250Mi"}))) == 750
    assert score(pod(_sized(None, {"memory": "1Mi"}))) == 999
    assert score(pod(_sized(None, {"memory": "1000Mi"}))) == 3
    assert score(pod(priority=2000001000)) == -997


# -- names and resolvers ----------------------------------------------------------------------------------------------
HOST = dns.parse("search corp.example lan\nnameserver 192.0.2.53\noptions ndots:1 timeout:2\n")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, dns.Resolver(("10.96.0.10",), ("default.svc.c.l", "svc.c.l", "c.l", "corp.example", "lan"), ("ndots:5",))),
        ({"dnsPolicy": "Default"}, HOST),
        ({"hostNetwork": True}, HOST),
        (
            {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
            dns.Resolver(("10.96.0.10",), ("default.svc.c.l", "svc.c.l", "c.l", "corp.example", "lan"), ("ndots:5",)),
        ),
        (
            {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.2.3.4"], "options": [{"name": "edns0"}]}},
            dns.Resolver(("1.2.3.4",), (), ("edns0",)),
        ),
        (
            {
                "dnsPolicy": "Default",
                "dnsConfig": {"options": [{"name": "ndots", "value": "3"}], "searches": ["lan", "x"]},
            },
            dns.Resolver(("192.0.2.53",), ("corp.example", "lan", "x"), ("ndots:3", "timeout:2")),
        ),
    ],
)
def test_the_resolver_follows_the_policy(spec: dict[str, Any], expected: dns.Resolver) -> None:
    assert dns.for_pod(pod(**spec), HOST, ["10.96.0.10"], "c.l") == expected


def test_without_a_cluster_dns_the_hosts_resolver_is_used() -> None:
    assert dns.for_pod(pod(), HOST, [], "c.l") == HOST
    lacks = 'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy.'
    told = f'pod: "web_default(uid-1)". {lacks} Falling back to "Default" policy.'
    assert dns.warnings(pod(), HOST, [], "c.l") == [("MissingClusterDNS", told)]
    assert dns.warnings(pod(hostNetwork=True), HOST, [], "c.l") == []


def test_what_a_resolver_has_no_room_for_is_told() -> None:
    searches = [f"d{n}" for n in range(40)]
    servers = ["1.0.0.1", "1.0.0.1", "1.0.0.2", "1.0.0.3"]
    given = pod(dnsPolicy="None", dnsConfig={"nameservers": servers})
    assert dns.warnings(given, HOST, [], "c.l") == []  # what is named twice counts once
    given = pod(dnsPolicy="None", dnsConfig={"nameservers": [*servers, "1.0.0.4"], "searches": searches})
    limits = "limits were exceeded, some {} have been omitted, the applied {} line is: {}"
    assert dns.warnings(given, HOST, [], "c.l") == [
        ("DNSConfigForming", "Nameserver " + limits.format("nameservers", "nameserver", "1.0.0.1 1.0.0.2 1.0.0.3")),
        ("DNSConfigForming", "Search Line " + limits.format("search paths", "search", " ".join(searches[:32]))),
    ]


def test_host_names_are_cut_to_63_characters_without_a_dash_at_the_end() -> None:
    long = pod(metadata={"name": "a" * 62 + "-b"})
    assert hosts.hostname_and_domain(long, "c.l") == ("a" * 62, "")
    full = pod(hostname="h", subdomain="s", setHostnameAsFQDN=True)
    assert hosts.sandbox_hostname(full, "c.l") == "h.s.default.svc.c.l"
    full = pod(hostname="h", subdomain="s" * 60, setHostnameAsFQDN=True)
    with pytest.raises(
        hosts.HostnameError, match=r"is too long \(64 characters is the max, 78 characters requested\)$"
    ):
        hosts.sandbox_hostname(full, "c.l")


# -- security ---------------------------------------------------------------------------------------------------------
def _context(container: dict[str, Any] | None = None, **spec: Any) -> Any:
    given = pod({"name": "main", "securityContext": container or {}}, **spec)
    return security.container_context(
        given, given.spec.containers[0], seccomp_default=True, seccomp_root=Path("/root/seccomp")
    )


def test_seccomp_profiles() -> None:
    kinds = type(_context().seccomp).ProfileType
    assert _context().seccomp.profile_type == kinds.RuntimeDefault
    assert _context({"privileged": True}).seccomp.profile_type == kinds.Unconfined
    assert _context({"seccompProfile": {"type": "Unconfined"}}).seccomp.profile_type == kinds.Unconfined
    local = _context({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}}).seccomp
    assert (local.profile_type, local.localhost_ref) == (kinds.Localhost, "/root/seccomp/a/b.json")


@pytest.mark.parametrize("profile", ["", "../etc/passwd", "/etc/passwd"])
def test_a_local_profile_that_is_empty_or_leads_out_is_refused(profile: str) -> None:
    with pytest.raises(environment.ContainerConfigError):
        _context({"seccompProfile": {"type": "Localhost", "localhostProfile": profile}})


@pytest.mark.parametrize(
    ("context", "image", "refused"),
    [
        ({}, security.ImageUser(), False),
        ({"runAsNonRoot": True}, security.ImageUser(), True),
        ({"runAsNonRoot": True}, security.ImageUser(0), True),
        ({"runAsNonRoot": True}, security.ImageUser(1000), False),
        ({"runAsNonRoot": True}, security.ImageUser(None, "www"), True),
        ({"runAsNonRoot": True, "runAsUser": 5}, security.ImageUser(None, "www"), False),
        ({"runAsNonRoot": True, "runAsUser": 0}, security.ImageUser(1000), True),
    ],
)
def test_a_container_that_must_not_be_root(context: dict[str, Any], image: security.ImageUser, refused: bool) -> None:
    given = pod({"name": "main", "securityContext": context})
    if refused:
        with pytest.raises(environment.ContainerConfigError):
            security.verify_user(given, given.spec.containers[0], image)
    else:
        security.verify_user(given, given.spec.containers[0], image)


# -- configuration ----------------------------------------------------------------------------------------------------
def test_upstreams_file_and_flags_become_one_configuration(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(
        HEAD + "clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\nmaxPods: 50\nnodeStatusUpdateFrequency: 1m30s\n"
        "containerLogMaxSize: 5Mi\nevictionHard: {memory.available: 200Mi}\nkubeAPIQPS: 50\n"
    )
    built = configure.from_flags(
        Flags(config=str(file), hostname_override="Node-A", node_labels="a=b,c=", register_with_taints="k=v:NoSchedule")
    )
    assert (built.node_name, built.max_pods, built.cluster_dns) == ("node-a", 50, ("10.96.0.10",))
    assert (built.status_update_period, built.log_max_bytes) == (90.0, 5 << 20)
    assert built.eviction_hard == {"memory.available": "200Mi"} and built.not_acted_on == ("kubeAPIQPS",)
    assert built.node_labels == {"a": "b", "c": ""}
    assert [(t.key, t.value, t.effect) for t in built.taints] == [("k", "v", "NoSchedule")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEAD + "maxPodz: 5\n", "maxPodz"),
        (HEAD + "authentication: {webhook: {enabeld: true}}\n", "enabeld"),
        (HEAD + "maxPods: many\n", "maxPods"),
        ("kind: Pod\napiVersion: v1\n", "found v1 Pod"),
        ("[1, 2]", "expected a mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_a_bad_file_is_refused_with_the_fields_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse(text)


@pytest.mark.parametrize(
    "change",
    [
        "cgroupDriver: none",
        "syncFrequency: 5 minutes",
        "authorization: {mode: RBAC}",
        "tlsMinVersion: VersionTLS9",
        "tlsCipherSuites: [TLS_NULL]",
    ],
)
def test_bad_values_are_refused(change: str) -> None:
    file, _ = parse(HEAD + change + "\n")
    with pytest.raises(ConfigError):
        configure.build(file, Flags())


def test_credentials_with_an_endless_address_are_for_no_image_and_only_so_many_are_compared() -> None:
    def known(*addresses: str) -> list[registry_auth.Credential]:
        return [registry_auth.Credential(address, "u", "p") for address in addresses]

    assert registry_auth.matching("a.io/x", known("*" * registry_auth.LONGEST + ".io", "*.io")) == known("*.io")
    many = known(*(f"r{number}.io" for number in range(registry_auth.MOST)), "a.io")
    assert registry_auth.matching("a.io/x", many) == []
    deep = core_v1.Secret(
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": base64.b64encode(b'{"auths":' + b"[" * 100_000).decode()},
    )
    assert registry_auth.credentials([deep]) == []


def test_an_environment_that_names_a_large_value_often_is_refused() -> None:
    refer = {"valueFrom": {"configMapKeyRef": {"name": "large", "key": "k"}}}
    given = pod({"name": "c", "env": [{"name": f"V{number}", **refer} for number in range(300)]})
    large = core_v1.ConfigMap(data={"k": "x" * 2**20})

    class Large:
        def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap:
            return large

        def secret(self, namespace: str, name: str) -> None:
            return None

    around = environment.EnvironmentSources(Large(), {})
    with pytest.raises(environment.ContainerConfigError, match="the environment has more than 4194304 characters"):
        environment.environment(given, given.spec.containers[0], around)
    bulk = pod({"name": "c", "envFrom": [{"configMapRef": {"name": "large"}}] * 5})
    with pytest.raises(environment.ContainerConfigError, match="the environment has more than"):
        environment.environment(bulk, bulk.spec.containers[0], around)
