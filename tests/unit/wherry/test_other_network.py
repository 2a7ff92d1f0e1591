"""Another pod network than Wherry's: folders of plugins, links, checks of the machine, and the change between the two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube.api import core_v1
from wherry import cluster, cni_plugins, other_network, reset, up
from wherry.errors import WherryError
from wherry.option_checks import complete
from wherry.settings import Settings

NAMES = ["bandwidth", "bridge", "loopback", "portmap"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the distribution's package."""
    folder = tmp_path / "usr/lib/cni"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).touch(0o755)
    monkeypatch.setattr(cni_plugins, "FOLDERS", (str(folder), str(tmp_path / "opt-of-the-machine")))
    return folder


@pytest.fixture
def other(tmp_path: Path, package: Path) -> Settings:
    return Settings(prefix=str(tmp_path / "machine"), pod_network="none")


def made(settings: Settings) -> dict[str, str]:
    folder = settings.layout.cni_plugins
    return {each.name: os.readlink(each) if each.is_symlink() else "" for each in folder.iterdir()}


def test_wherrys_network_uses_the_packages_plugins_whatever_others_install(package: Path, tmp_path: Path) -> None:
    theirs = Path(cni_plugins.FOLDERS[1])
    theirs.mkdir()
    (theirs / "bridge").touch(0o755)
    assert cni_plugins.searched(Settings()) == (package, theirs)
    (package / "bridge").unlink()
    assert cni_plugins.searched(Settings()) == (theirs, package), "where only they have one, it is used"


def test_another_networks_plugins_come_before_the_packages(other: Settings, package: Path) -> None:
    assert cni_plugins.searched(other) == (other.layout.cni_plugins, package)


def test_without_plugins_only_wherrys_network_is_refused(other: Settings, package: Path) -> None:
    (package / "bridge").unlink()
    cni_plugins.require(other)
    with pytest.raises(WherryError, match="apt-get install containernetworking-plugins"):
        cni_plugins.require(Settings())


# -- links --------------------------------------------------------------------------------------------------------------
def test_plugins_of_the_package_are_linked_where_another_network_has_none(other: Settings, package: Path) -> None:
    folder = other.layout.cni_plugins
    folder.mkdir(parents=True)
    (folder / "portmap").write_text("theirs")
    cni_plugins.link(other)
    assert made(other) == {"portmap": "", **{name: str(package / name) for name in ("bandwidth", "bridge", "loopback")}}
    before = {name: (folder / name).lstat().st_ino for name in made(other)}
    cni_plugins.link(other)
    assert {name: (folder / name).lstat().st_ino for name in made(other)} == before, "no plugin is away for a moment"


def test_links_follow_the_package(other: Settings, package: Path) -> None:
    cni_plugins.link(other)
    (package / "bandwidth").unlink()
    (package / "vlan").touch(0o755)
    (package / "README").touch(0o644)
    cni_plugins.link(other)
    assert sorted(made(other)) == ["bridge", "loopback", "portmap", "vlan"]


def test_only_links_of_its_own_are_removed(other: Settings, package: Path) -> None:
    folder = other.layout.cni_plugins
    folder.mkdir(parents=True)
    (folder / "bridge").symlink_to(package / "bridge")
    cni_plugins.link(other)
    (folder / "loopback").unlink()
    (folder / "loopback").write_text("an installer's")
    (folder / "portmap").unlink()
    (folder / "portmap").symlink_to("/srv/portmap")
    cni_plugins.remove_links(other.layout)
    assert made(other) == {"bridge": str(package / "bridge"), "loopback": "", "portmap": "/srv/portmap"}
    assert not other.layout.cni_links.exists()
    cni_plugins.remove_links(other.layout)


def test_a_folder_without_anything_to_link_is_not_made(other: Settings, package: Path) -> None:
    for name in NAMES:
        (package / name).unlink()
    package.rmdir()
    cni_plugins.link(other)
    assert not other.layout.cni_plugins.exists() and not other.layout.cni_links.exists()


# -- checks -------------------------------------------------------------------------------------------------------------
def levels(settings: Settings) -> dict[str, str]:
    return {found.what: found.level for found in other_network.findings(settings)}


@pytest.fixture
def forwarding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "ip_forward"
    file.write_text("1\n")
    monkeypatch.setattr(other_network, "FORWARDING", file)
    return file


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("10-flannel.conflist", True),
        ("00-multus.conf", True),
        ("05.json", True),
        ("10-wherry.conflist", False),
        ("87-podman.conflist", False),
        ("10-flannel.conflist.bak", False),
        ("README", False),
    ],
)
def test_a_configuration_that_comes_before_wherrys_is_reported(tmp_path: Path, name: str, first: bool) -> None:
    settings = Settings(prefix=str(tmp_path))
    settings.layout.cni_configuration.mkdir(parents=True)
    (settings.layout.cni_configuration / name).touch()
    found = levels(settings)
    assert [what for what in found if name in what] == list(found) and bool(found) is first


def test_a_machine_that_does_not_forward_is_reported_as_by_kubeadm(other: Settings, forwarding: Path) -> None:
    assert levels(other) == {}
    forwarding.write_text("0\n")
    assert levels(other) == {"the kernel does not forward packets (net.ipv4.ip_forward is 0)": "warning"}


def test_a_missing_loopback_plugin_is_reported_until_somebody_brings_one(
    other: Settings, package: Path, forwarding: Path
) -> None:
    (package / "loopback").unlink()
    ((what, level),) = levels(other).items()
    assert level == "warning" and str(package) in what and str(other.layout.cni_plugins) in what
    other.layout.cni_plugins.mkdir(parents=True)
    (other.layout.cni_plugins / "loopback").touch()
    assert levels(other) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="folders of root")
@pytest.mark.parametrize(("mode", "wrong"), [(0o755, False), (0o775, True), (0o777, True), (0o1777, True)])
def test_programs_that_others_can_replace_are_not_run(
    other: Settings, forwarding: Path, mode: int, wrong: bool
) -> None:
    other.layout.cni_plugins.mkdir(parents=True)
    other.layout.cni_plugins.chmod(mode)
    assert list(levels(other).values()) == ["error"] * wrong
    other.layout.cni_plugins.chmod(0o755)
    os.chown(other.layout.cni_plugins.parent, 65534, -1)
    assert list(levels(other).values()) == ["error"]


def configure(settings: Settings, **files: str) -> None:
    folder = settings.layout.cni_configuration
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name.replace('_', '-')}.conflist").write_text(text)


@pytest.fixture
def named(other: Settings, forwarding: Path) -> Settings:
    return Settings(prefix=other.prefix, pod_network="flannel")


def about(settings: Settings, *, running: bool = True) -> str:
    """Return the finding about a required network."""
    found = list(other_network.findings(settings, running=running))
    assert [each.level for each in found] in ([], ["warning"])
    return found[0].what if found else ""


def test_a_required_network_that_is_installed_is_accepted(named: Settings) -> None:
    configure(named, l0_flannel='{"name": "flannel", "plugins": []}', l1_podman='{"name": "podman"}')
    assert about(named) == ""
    assert other_network.summary(named) == "pod network and network policies: those of the CNI network flannel"


def test_another_network_in_the_place_of_the_required_one_is_reported(named: Settings) -> None:
    configure(named, l1_flannel='{"name": "flannel"}', l0_podman='{"name": "podman"}')
    path = named.layout.cni_configuration / "l0-podman.conflist"
    expected = f"{path} is the network podman, and the pod network is flannel"
    assert about(named) == about(named, running=False) == expected
    assert other_network.summary(named).endswith(f"flannel; {expected}")
    (found,) = other_network.findings(named)
    assert "--pod-network podman" in found.fix
    assert about(Settings(prefix=named.prefix, pod_network="none")) == "", "which accepts any"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 1}', "{}", "[" * 100_000, "\xff"], ids=lambda text: text[:9])
def test_a_broken_configuration_is_no_network(named: Settings, text: str) -> None:
    configure(named, broken=text)
    assert about(named).endswith("broken.conflist is no CNI configuration, and the pod network is flannel")


def test_a_required_network_that_nobody_has_installed_is_reported_once_the_node_runs(named: Settings) -> None:
    assert about(named, running=False) == ""
    missing = f"no CNI configuration in {named.layout.cni_configuration}: the pod network flannel is not installed"
    assert about(named) == missing and other_network.summary(named).endswith(missing)


def test_a_configuration_that_may_not_be_read_is_not_judged(named: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(named, l0_calico='{"name": "k8s-pod-network"}')

    def denied(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(other_network, "network_name", denied)
    assert about(named) == ""
    assert other_network.summary(named) == "pod network and network policies: those of the CNI network flannel"


@pytest.mark.parametrize("name", ["flannel", "k8s-pod-network", "cbr0", "_x", "-x", "a b", "a/b", "é", "a" * 254])
def test_a_pod_network_has_a_name_that_libcni_accepts(name: str) -> None:
    settings = Settings(pod_network=name, cluster_dns="none")
    if name in ("flannel", "k8s-pod-network", "cbr0"):
        assert complete(settings, "192.0.2.1").required_network == name
        return
    with pytest.raises(WherryError, match=r"^--pod-network .*: it is wherry, none, or the name of a CNI network: "):
        complete(settings, "192.0.2.1")


@pytest.mark.parametrize("name", ["wherry", "none"])
def test_the_agent_requires_no_network_by_default(name: str) -> None:
    assert Settings(pod_network=name).required_network == ""


# -- the change ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Resources that are removed from a machine, in their order."""
    done: list[str] = []

    async def pods(settings: Settings) -> None:
        done.append(f"pods of {settings.pod_network}")

    async def own(settings: Settings) -> None:
        done.append("network")

    async def dns(addresses: object) -> None:
        done.append(f"addresses {addresses}")

    monkeypatch.setattr(reset, "remove_pods", pods)
    monkeypatch.setattr(other_network, "_remove_own", own)
    monkeypatch.setattr("netproxy.cleanup.remove_dns", dns)
    return done


async def test_a_machine_changes_its_network_without_pods(tmp_path: Path, removed: list[str]) -> None:
    own, none = (Settings(prefix=str(tmp_path), cluster_dns="10.96.0.10", pod_network=n) for n in ("wherry", "none"))
    await up._leave(own, own)
    await up._leave(none, none)
    assert removed == []
    await up._leave(own, none)
    assert removed == ["pods of wherry", "network"], "pods go first, with the plugins of their network"
    removed.clear()
    await up._leave(none, own)
    assert removed == ["pods of none"], "what another plugin has made is its own"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("none", "flannel", []),
        ("flannel", "none", []),
        ("flannel", "flannel", []),
        ("flannel", "calico", ["pods of flannel"]),
        ("wherry", "flannel", ["pods of wherry", "network"]),
        ("flannel", "wherry", ["pods of flannel"]),
    ],
)
async def test_pods_are_removed_where_new_ones_would_have_a_network_of_another_name(
    tmp_path: Path, removed: list[str], before: str, after: str, expected: list[str]
) -> None:
    await up._leave(*(Settings(prefix=str(tmp_path), pod_network=name) for name in (before, after)))
    assert removed == expected


async def test_configurations_that_would_be_used_instead_are_renamed_after_pods_are_removed_by_them(
    other: Settings, removed: list[str]
) -> None:
    folder = other.layout.cni_configuration
    folder.mkdir(parents=True)
    for name in ("10-flannel.conflist", "87-podman.conflist"):
        (folder / name).touch()
    await up._leave(other, Settings(prefix=other.prefix))
    assert removed == ["pods of none"]
    assert sorted(path.name for path in folder.iterdir()) == ["10-flannel.conflist.disabled", "87-podman.conflist"]
    assert other_network.others_first(other) == []


async def test_pods_that_cannot_be_removed_keep_their_network(
    other: Settings, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(settings: Settings) -> None:
        raise WherryError("pods cannot be removed: calico does not answer")

    other.layout.cni_configuration.mkdir(parents=True)
    (other.layout.cni_configuration / "10-calico.conflist").touch()
    monkeypatch.setattr(reset, "remove_pods", fail)
    with pytest.raises(WherryError, match=r"calico does not answer.*`wherry up --pod-network none`"):
        await up._leave(other, Settings(prefix=other.prefix))
    assert removed == [] and (other.layout.cni_configuration / "10-calico.conflist").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"dns": "none"}, ["addresses ('10.96.0.10',)"]),
        ({"cluster_dns": "none"}, ["addresses ('10.96.0.10',)"]),
        ({"dns": "alone"}, []),
        ({}, []),
    ],
    ids=str,
)
async def test_a_dns_of_somebody_elses_gets_the_addresses(
    tmp_path: Path, removed: list[str], options: dict[str, str], expected: list[str]
) -> None:
    before = {"prefix": str(tmp_path), "cluster_dns": "10.96.0.10"}
    await up._leave(Settings(**before), Settings(**{**before, **options}))
    assert removed == expected


# -- readiness ----------------------------------------------------------------------------------------------------------
NO_NETWORK = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns "
    "error: cni plugin not initialized"
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (NO_NETWORK, True),
        (f"container runtime not ready: RuntimeReady=false reason:X message:Y; {NO_NETWORK}", False),
        ("container runtime is down: no answer", False),
        ("", False),
    ],
)
def test_a_node_that_lacks_only_a_network_is_told_from_others(message: str, expected: bool) -> None:
    assert cluster.lacks_network(core_v1.NodeCondition(type="Ready", status="False", message=message)) is expected
