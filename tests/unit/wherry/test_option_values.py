"""Generated values of every option: refused in one sentence of the command's own, or accepted by what reads them."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.configure import build
from agent.flags import Flags
from agent.kubelet_configuration import decode
from control.controllers.node_ipam import Ranges
from kube import pki
from kube.kubeconfig import Access, render
from netproxy import configuration_file, validation
from wherry import config_file, configuration, containerd, registries, wanted
from wherry import settings as saved
from wherry.command_options import Option, options_of
from wherry.control_settings import control_config
from wherry.discovery import server_url
from wherry.errors import OptionError, WherryError
from wherry.join_options import problems as join_problems
from wherry.membership import join
from wherry.option_checks import complete, option_name
from wherry.proxy_settings import dns_config, proxy_config
from wherry.settings import Settings
from wherry.up_command import up

EXAMPLES = int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "300"))
UP, JOIN = options_of(up), options_of(join)
OF_LIBRARIES = re.compile(
    r"Input should|unable to parse|pydantic|Traceback|Node\(|tag:yaml|<stream end>|<block|Expected `|at `\$|does not appear|"
    r"host bits|codec can't|embedded null|invalid literal",
)
"""Texts by which the libraries that read values explain an error to programmers."""
GOOD = {
    "node-name": "node-1.example",
    "node-ip": "192.0.2.7,fd99::7",
    "pod-cidr": "10.1.0.0/16,fd01::/56",
    "service-cidr": "10.2.0.0/16,fd02::/112",
    "cluster-domain": "cluster.example",
    "cluster-dns": "10.96.0.53",
    "load-balancer-ports": "80,443,8000-8010",
    "runtime-endpoint": "unix:///run/containerd/containerd.sock",
    "sandbox-image": "registry.example:5000/a/pause:3.10",
    "resolv-conf": "/etc/hosts",
    "tracing-endpoint": "127.0.0.1:4317",
    "etcd-servers": "https://10.0.0.1:2379,http://[fd00::1]:2379",
    "etcd-prefix": "/registry",
    "snapshot-schedule": "0 3 * * *",
    "snapshot-folder": "/",
    "snapshot-s3-region": "eu-1",
    "name": "*.api.example.com",
    "disable": "metrics",
    "registry-mirror": "docker.io=https://user:pw@mirror.example:5000/path",
    "server": "https://10.0.0.1:6443",
    "token": "abcdef.0123456789abcdef",
}
CHARACTERS = st.one_of(st.sampled_from(list("-_.:/,@=%[]{}#*'\"\\ ~!0189azAZ\n\t\0")), st.characters())
"""Those that have a meaning in some form, and all others; half a surrogate is what an argument that is not UTF-8 has."""


@st.composite
def texts(draw: st.DrawFn, good: str) -> str:
    """A text, or a good value of an option with some characters replaced, inserted or removed."""
    if not good or draw(st.integers(0, 3)) == 0:
        return draw(st.text(CHARACTERS, min_size=1, max_size=draw(st.sampled_from([3, 30, 300]))))
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.integers(0, len(good)))
        last = min(len(good), first + draw(st.integers(0, 3)))
        good = good[:first] + draw(st.text(CHARACTERS, max_size=3)) + good[last:]
    return good


@st.composite
def one(draw: st.DrawFn) -> tuple[Option, Any]:
    """An option and a value of its type."""
    option = draw(st.sampled_from(sorted((UP | JOIN).values(), key=lambda each: each.name)))
    if option.type is int:
        return option, draw(st.one_of(st.integers(), st.integers(-1, 70_000)))
    if option.type is bool:
        return option, draw(st.booleans())
    text = draw(texts(GOOD.get(option.name, "")))
    return option, [text] if option.type is list else text


def daemons_accept(full: Settings, folder: Path) -> None:
    """Have everything that reads the settings of a machine read them; raises what it raises."""
    full.save()
    assert saved.load(full.prefix) == full
    kubelet = configuration.kubelet_configuration(full, configuration.shared_kubelet(full))
    document = yaml.safe_load(yaml.safe_dump(kubelet))
    build(decode(document, "the file")[0], Flags(hostname_override=full.node_name, node_ip=",".join(full.node_ips)))
    proxy = yaml.safe_load(yaml.safe_dump(configuration.proxy_configuration(full, configuration.shared_proxy(full))))
    if full.proxy != "upstream":
        upstream = configuration_file.parse(proxy)
        for config in (proxy_config(full, upstream), dns_config(full, upstream)):
            validation.validate(config)
    control = control_config(full)
    for cidr in control.pod_cidr.split(","):
        Ranges(cidr, control.node_cidr_mask if ":" not in cidr else 64)
    addresses = [full.kubernetes_service, *full.node_ips, *full.dns_addresses]
    assert all(ipaddress.ip_address(address) for address in addresses)
    names = [full.node_name, *full.node_ips, *full.names, f"kubernetes.default.svc.{full.cluster_domain}"]
    x509.SubjectAlternativeName(pki.general_names(names)).public_bytes()
    pki.kubelet_client_request(pki.new_key(), full.node_name)
    assert yaml.safe_load(render(Access(server=full.server, ca=b"CA"), user=f"system:node:{full.node_name}"))
    if full.own_containerd:
        toml = tomllib.loads(containerd.configuration(full))
        image = toml["plugins"]["io.containerd.grpc.v1.cri"]["sandbox_image"]
        assert not full.sandbox_image or image == full.sandbox_image
    for host, registry in full.all_registries.items():
        assert set(registry.mirrors) <= tomllib.loads(registries.hosts_file(host, registry))["host"].keys()
        registries.write(folder / "registries", {host: registry})


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wherry.cni_plugins.require", lambda settings: None)


@settings(deadline=None, max_examples=EXAMPLES)
@given(one())
def test_a_value_is_refused_in_one_sentence_or_accepted_by_what_reads_it(
    tmp_path_factory: pytest.TempPathFactory, chosen: tuple[Option, Any]
) -> None:
    option, value = chosen
    folder = tmp_path_factory.mktemp("machine")
    if option.name in JOIN.keys() - UP.keys():
        for problem in join_problems({option.parameter: value}):
            assert "\n" not in problem.text and not OF_LIBRARIES.search(problem.text.replace(str(value), ""))
            return
        assert option.name != "server" or server_url(value).startswith("https://")
        return
    before = Settings(prefix=str(folder), node_name="node-1")
    if option.name.startswith("etcd"):
        before = msgspec.structs.replace(before, store="etcd", etcd_servers="http://10.0.0.1:2379")
    if option.name in ("pod-cidr", "service-cidr"):
        other = "service-cidr" if option.name == "pod-cidr" else "pod-cidr"
        before = msgspec.structs.replace(before, **{other.replace("-", "_"): GOOD[other]})
    try:
        flags = wanted.given({option.parameter: value})
        full = complete(msgspec.structs.replace(before, **flags), "192.0.2.10")
    except OptionError as error:
        for problem in error.problems:
            assert problem.text.count("\n") == 0 and problem.text.isprintable()
            assert f"--{option.name}" in problem.text or option.name in (problem.option, *problem.others)
            assert not OF_LIBRARIES.search(problem.text.replace(str(value), ""))
        return
    daemons_accept(full, folder)


@settings(deadline=None, max_examples=EXAMPLES)
@given(st.text(CHARACTERS, max_size=60), st.sampled_from(["", "max-pods: ", "registries: ", "name: [", "? "]))
def test_a_file_of_any_text_is_read_or_refused_in_the_commands_words(
    tmp_path_factory: pytest.TempPathFactory, text: str, start: str
) -> None:
    path = tmp_path_factory.mktemp("file") / "config.yaml"
    path.write_bytes((start + text).encode(errors="surrogatepass"))
    path.chmod(0o600)
    try:
        config_file.read(path, UP | JOIN)
    except WherryError as error:
        assert all(line.startswith(str(path)) and line.isprintable() for line in str(error).split("\n"))
        assert not OF_LIBRARIES.search(str(error)) or OF_LIBRARIES.search(text)


def test_every_setting_of_an_option_has_its_name() -> None:
    named = {option_name(field) for field in Settings.__struct_fields__}
    assert UP.keys() <= named
