"""Addons: objects of files are applied, pruned and kept, against a real API server with its controllers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from control.controllers.addons import application, controller
from control.controllers.addons.applyset import GROUP_KINDS, ID, NAMESPACES, PART_OF, TOOLING, addon_identifier
from control.controllers.addons.members import FIELD_MANAGER
from control.controllers.addons.settings import AddonSettings
from control.controllers.manager import ControllerConfig
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually, running


class Site:
    """A server, and a folder of addons that its controllers follow."""

    def __init__(self, server: ApiUnderTest, folder: Path) -> None:
        self.server, self.folder = server, folder

    def controllers(self, *disabled: str, server: str = "10.0.0.1", shared: bool = False) -> Any:
        """Return a block in which the controllers run."""
        record = self.folder.parent / f"applied-{server}.json"
        settings = AddonSettings(self.folder, frozenset(disabled), server, shared, record)
        return running(self.server.controllers(ControllerConfig(addons=settings)))

    def write(self, file: str, *objects: Any) -> None:
        """Write a file as a whole."""
        path = self.folder.parent / file
        path.write_text(yaml.safe_dump_all(objects))
        path.chmod(0o644)
        path.rename(self.folder / file)

    async def get(self, path: str) -> Any:
        """Return an object, None if it does not exist."""
        answer = await self.server.request("GET", path)
        return answer.json if answer.status == 200 else None

    async def config_map(self, name: str, namespace: str = "default") -> Any:
        return await self.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")

    async def parent(self, addon: str) -> Any:
        return await self.config_map(f"addon-{addon}", "kube-system")

    async def state(self, addon: str, state: str, message: str = "") -> Any:
        """Wait for a state, and return the parent."""

        async def reached() -> Any:
            found = await self.parent(addon)
            data = found["data"] if found else {}
            return found if data.get("state") == state and message in data.get("message", "") else None

        return await eventually(reached)

    async def until(self, name: str, check: Callable[[Any], Any], namespace: str = "default") -> Any:
        """Wait until a ConfigMap, or None, passes a check."""

        async def passed() -> bool:
            return bool(check(await self.config_map(name, namespace)))

        await eventually(passed)
        return await self.config_map(name, namespace)

    async def events(self, addon: str) -> list[str]:
        items = (await self.get("/api/v1/namespaces/kube-system/events"))["items"]
        return [e["reason"] for e in items if e["involvedObject"]["name"] == f"addon-{addon}"]


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    for name, seconds in (("SCAN_SECONDS", 0.05), ("SETTLE_SECONDS", 0.1), ("PRUNE_SECONDS", 0.5)):
        monkeypatch.setattr(controller, name, seconds)
    for name in ("CHECK_SECONDS", "REMOVAL_POLL", "FIRST_RETRY", "LAST_RETRY"):
        monkeypatch.setattr(controller, name, 0.2)
    monkeypatch.setattr(application, "DEFINITION_POLL", 0.05)
    folder = tmp_path / "addons"
    folder.mkdir(mode=0o755)
    async with api_server(tmp_path) as server:
        yield Site(server, folder)


def config_map(name: str, namespace: str = "", **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {"a": "1"}}


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


FLEETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "fleets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "fleets", "singular": "fleet", "kind": "Fleet", "listKind": "FleetList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                    }
                },
            }
        ],
    },
}


async def test_objects_are_applied_changed_and_pruned_as_an_applyset(site: Site) -> None:
    # In the file the namespace comes after the object in it.
    site.write("web.yaml", config_map("one", "shop"), config_map("two"), namespace("shop"))
    async with site.controllers():
        parent = await site.state("web", "Applied")
        one = await site.config_map("one", "shop")
        applyset = addon_identifier("web")
        assert one["metadata"]["labels"] == {PART_OF: applyset}
        owners = {(entry["manager"], entry["operation"]) for entry in one["metadata"]["managedFields"]}
        assert owners == {(FIELD_MANAGER, "Apply")}
        annotations = parent["metadata"]["annotations"]
        assert annotations[GROUP_KINDS] == "ConfigMap,Namespace" and annotations[NAMESPACES] == "default,shop"
        assert annotations[TOOLING].startswith("wherry/v") and parent["metadata"]["labels"][ID] == applyset
        assert parent["data"]["file"] == "web.yaml" and parent["data"]["objects"] == "3"
        site.write("web.yaml", config_map("two", a="2"))
        await site.until("two", lambda found: found["data"] == {"a": "2"})
        await eventually(lambda: _is_gone(site, "/api/v1/namespaces/shop"))

        async def narrowed() -> bool:
            found = (await site.parent("web"))["metadata"]["annotations"]
            return bool(found[GROUP_KINDS] == "ConfigMap" and found[NAMESPACES] == "default")

        await eventually(narrowed)
        assert {"AddonApplied", "AddonPruned"} <= set(await eventually(lambda: site.events("web")))
        (site.folder / "web.yaml").unlink()
        await site.until("two", lambda found: found is None)
        await eventually(lambda: _is_gone(site, "/api/v1/namespaces/kube-system/configmaps/addon-web"))


async def _is_gone(site: Site, path: str) -> bool:
    return await site.get(path) is None


async def test_a_definition_and_its_object_are_in_one_file(site: Site) -> None:
    fleet = {"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "a"}, "spec": {"size": 3}}
    site.write("fleets.yaml", fleet, FLEETS)
    async with site.controllers():
        await site.state("fleets", "Applied")
        path = "/apis/example.com/v1/namespaces/default/fleets/a"
        assert (await site.get(path))["spec"] == {"size": 3}
        (site.folder / "fleets.yaml").unlink()
        await eventually(lambda: _is_gone(site, "/api/v1/namespaces/kube-system/configmaps/addon-fleets"))
        assert await _is_gone(site, path)


async def test_an_object_whose_kind_comes_later_is_retried(site: Site) -> None:
    fleet = {"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "a"}, "spec": {"size": 3}}
    site.write("a.yaml", fleet, config_map("beside"))
    async with site.controllers():
        await site.state("a", "Failed", 'Fleet.example.com a: no matches for kind "Fleet" in version "example.com/v1"')
        assert await site.config_map("beside")
        assert "AddonFailed" in await eventually(lambda: site.events("a"))
        site.write("definitions.yaml", FLEETS)
        await site.state("a", "Applied")


async def test_a_file_that_is_invalid_or_cannot_be_applied_prunes_nothing(site: Site) -> None:
    site.write("a.yaml", config_map("one"), config_map("two"))
    async with site.controllers():
        await site.state("a", "Applied")
        for text, message in (("", "the file has no object"), ("kind: [", "document 1: yaml:")):
            (site.folder / "a.yaml").write_text(text)
            await site.state("a", "Invalid", message)
        bad = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Two"}}
        site.write("a.yaml", config_map("one", a="2"), bad)
        await site.state("a", "Failed", "ConfigMap default/Two: ")
        assert (await site.config_map("one"))["data"] == {"a": "2"} and await site.config_map("two")
        (site.folder / "a.yaml").chmod(0o666)
        await site.state("a", "Refused", f"chmod go-w {site.folder / 'a.yaml'}")
        assert await site.config_map("two")
        assert {"AddonInvalid", "AddonFailed"} <= set(await eventually(lambda: site.events("a")))
        site.write("a.yaml", config_map("one"))
        await site.until("two", lambda found: found is None)
        # Of a file that was never applied nothing is left either.
        site.write("b.yaml")
        await site.state("b", "Invalid")
        (site.folder / "b.yaml").unlink()
        await eventually(lambda: _is_gone(site, "/api/v1/namespaces/kube-system/configmaps/addon-b"))


async def test_no_value_of_a_secret_is_in_the_state_an_event_or_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Others than the readers of the Secret may read these."""
    value, head = "hunter2", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n"
    caplog.set_level("DEBUG")
    async with site.controllers():
        for text, state, message in (
            (f"stringData: {value}", "Failed", "Secret default/a: "),
            (f"data:\n  password: {value}!", "Failed", "Secret default/a: "),
            (f"type: [{value}]", "Failed", "Secret default/a: "),
            (f"stringData:\n  password: *{value}", "Invalid", "document 1: line 6: "),
            (f"stringData:\n  {value}: 1\n  {value}: 2", "Invalid", "document 1: line 7: "),
        ):
            (site.folder / "a.yaml").write_text(f"{head}{text}\n")
            await site.state("a", state, message)
        stored = await site.get("/api/v1/namespaces/kube-system/configmaps/addon-a")
        await eventually(lambda: _has(site, "AddonFailed"))
        await eventually(lambda: _has(site, "AddonInvalid"))
        events = await site.get("/api/v1/namespaces/kube-system/events")
    assert value not in f"{stored}{events}"
    assert value not in "".join(record.getMessage() for record in caplog.records if "addon" in record.name)


async def _has(site: Site, reason: str) -> bool:
    return reason in await site.events("a")


async def test_objects_that_somebody_changed_or_deleted_are_applied_again(site: Site) -> None:
    site.write("a.yaml", config_map("one"), config_map("two"))
    async with site.controllers():
        await site.state("a", "Applied")
        change = {"data": {"a": "changed", "b": "mine"}, "metadata": {"labels": {PART_OF: None, "x": "y"}}}
        path = "/api/v1/namespaces/default/configmaps"
        patch = {"Content-Type": "application/merge-patch+json"}
        assert (await site.server.request("PATCH", f"{path}/one", change, headers=patch)).status == 200
        one = await site.until("one", lambda found: found["data"]["a"] == "1")
        assert one["data"]["b"] == "mine"  # a field that the file does not have
        assert one["metadata"]["labels"] == {PART_OF: addon_identifier("a"), "x": "y"}
        assert (await site.server.request("DELETE", f"{path}/two")).status == 200
        await site.until("two", bool)
        assert "AddonReverted" in await eventually(lambda: site.events("a"))


async def test_nothing_is_written_while_nothing_changes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write("a.yaml", config_map("one"))
    async with site.controllers():
        await site.state("a", "Applied")
        attempts = 0
        finish = application.Application._save_state

        async def counted(self: Any, *arguments: Any) -> Any:
            nonlocal attempts
            attempts += 1
            return await finish(self, *arguments)

        monkeypatch.setattr(application.Application, "_save_state", counted)
        await eventually(lambda: attempts >= 1)
        before = [await site.parent("a"), await site.config_map("one")]
        attempts = 0
        await eventually(lambda: attempts >= 2)
        assert [await site.parent("a"), await site.config_map("one")] == before


async def test_a_restart_prunes_what_left_the_file_meanwhile_and_nothing_else(site: Site) -> None:
    site.write("a.yaml", config_map("one"), config_map("two"))
    site.write("b.yaml", config_map("three"))
    async with site.controllers():
        await site.state("a", "Applied")
        await site.state("b", "Applied")
    # The label alone is no membership: it is copied with an object.
    copy = config_map("copy") | {"metadata": {"name": "copy", "labels": {PART_OF: addon_identifier("a")}}}
    created = await site.server.request("POST", "/api/v1/namespaces/default/configmaps", copy)
    assert created.status == 201
    site.write("a.yaml", config_map("one"))
    (site.folder / "b.yaml").unlink()
    async with site.controllers():
        await site.until("two", lambda found: found is None)
        await site.until("three", lambda found: found is None)
        assert await site.config_map("one") and await site.config_map("copy")


async def test_a_parent_that_lists_too_much_is_looked_through_and_corrected(site: Site) -> None:
    site.write("a.yaml", namespace("shop"), config_map("one", "shop"), config_map("two"))
    path, patch = "/api/v1/namespaces/kube-system/configmaps/addon-a", {"Content-Type": "application/merge-patch+json"}
    async with site.controllers():
        await site.state("a", "Applied")
    names = ",".join(f"n{number}" for number in range(4000))
    change = {"metadata": {"annotations": {GROUP_KINDS: names, NAMESPACES: names}}}
    assert (await site.server.request("PATCH", path, change, headers=patch)).status == 200
    site.write("a.yaml", namespace("shop"), config_map("two"))
    async with site.controllers():
        await site.until("one", lambda found: found is None, "shop")

        async def corrected() -> bool:
            found = (await site.parent("a"))["metadata"]["annotations"]
            return bool(found[GROUP_KINDS] == "ConfigMap,Namespace" and found[NAMESPACES] == "default")

        await eventually(corrected)
        await site.state("a", "Applied")


async def test_nothing_is_pruned_while_the_folder_cannot_be_used(site: Site) -> None:
    site.write("a.yaml", config_map("one"))
    site.write("b.yaml", config_map("two"))
    async with site.controllers():
        await site.state("a", "Applied")
        await site.state("b", "Applied")
    (site.folder / "a.yaml").unlink()
    site.folder.chmod(0o777)
    scans = 0

    async with site.controllers():

        async def scanned() -> bool:
            nonlocal scans
            scans += 1
            return scans > 60

        await eventually(scanned)
        assert await site.config_map("one") and await site.config_map("two")
        site.folder.chmod(0o755)
        await site.until("one", lambda found: found is None)
        assert await site.config_map("two")


async def test_a_renamed_file_keeps_its_objects(site: Site) -> None:
    site.write("a.yaml", config_map("one"))
    async with site.controllers():
        await site.state("a", "Applied")
        before = (await site.config_map("one"))["metadata"]["uid"]
        (site.folder / "a.yaml").rename(site.folder / "b.yaml")
        await site.state("b", "Applied")
        await eventually(lambda: _is_gone(site, "/api/v1/namespaces/kube-system/configmaps/addon-a"))
        one = await site.config_map("one")
        assert one["metadata"]["uid"] == before and one["metadata"]["labels"][PART_OF] == addon_identifier("b")


async def test_an_object_of_another_applyset_is_not_taken(site: Site) -> None:
    others = config_map("one") | {"metadata": {"name": "one", "labels": {PART_OF: "applyset-others-v1"}}}
    assert (await site.server.request("POST", "/api/v1/namespaces/default/configmaps", others)).status == 201
    site.write("a.yaml", config_map("one", a="2"), config_map("two"))
    site.write("b.yaml", config_map("two"))
    async with site.controllers():
        await site.state("a", "Failed", "ConfigMap default/one: it belongs to another ApplySet, applyset-others-v1")
        assert (await site.config_map("one"))["data"] == {"a": "1"}

        async def one_failed() -> bool:
            states = [((await site.parent(name)) or {}).get("data", {}).get("message", "") for name in "ab"]
            return sum("default/two: it belongs to another ApplySet" in state for state in states) == 1

        await eventually(one_failed)


async def test_a_disabled_addon_is_pruned_and_not_applied(site: Site) -> None:
    site.write("a.yaml", config_map("one"))
    async with site.controllers():
        await site.state("a", "Applied")
    site.write("b.yaml", config_map("two"))
    async with site.controllers("a", "later"):
        await site.state("b", "Applied")
        await site.until("one", lambda found: found is None)
        await eventually(lambda: _is_gone(site, "/api/v1/namespaces/kube-system/configmaps/addon-a"))
    async with site.controllers():
        await site.until("one", bool)


async def test_a_leader_without_the_file_of_another_keeps_the_objects(site: Site) -> None:
    site.write("a.yaml", config_map("one"))
    async with site.controllers(server="10.0.0.1", shared=True):
        await site.state("a", "Applied")
    (site.folder / "a.yaml").unlink()
    async with site.controllers(server="10.0.0.2", shared=True):
        parent = await site.state("a", "Kept", "10.0.0.1 applied it")
        assert parent["data"]["server"] == "10.0.0.1" and await site.config_map("one")
    async with site.controllers("a", server="10.0.0.2", shared=True):
        await site.until("one", lambda found: found is None)


async def test_a_member_whose_folder_lost_a_file_while_another_led_keeps_the_objects(site: Site) -> None:
    site.write("a.yaml", config_map("one"))
    for server in ("10.0.0.1", "10.0.0.2"):
        async with site.controllers(server=server, shared=True):

            async def applied(server: str = server) -> bool:
                return bool((await site.parent("a"))["data"]["server"] == server)

            await eventually(lambda: site.parent("a"))
            await eventually(applied)
    (site.folder / "a.yaml").unlink()
    async with site.controllers(server="10.0.0.1", shared=True):
        await site.state("a", "Kept", "10.0.0.2 applied it, not this machine")
    async with site.controllers(server="10.0.0.2", shared=True):
        await site.until("one", lambda found: found is None)


async def test_a_machine_with_a_restored_snapshot_keeps_the_objects(site: Site) -> None:
    site.write("a.yaml", config_map("one"))
    async with site.controllers():
        await site.state("a", "Applied")
    (site.folder / "a.yaml").unlink()
    (site.folder.parent / "applied-10.0.0.1.json").unlink()
    async with site.controllers():
        await site.state("a", "Kept", "another installation applied it")
        assert await site.config_map("one")
        site.write("a.yaml", config_map("one", a="2"))
        await site.until("one", lambda found: found["data"] == {"a": "2"})
        (site.folder / "a.yaml").unlink()
        await site.until("one", lambda found: found is None)


async def test_a_config_map_of_the_parents_name_is_left_alone(site: Site) -> None:
    mine = config_map("addon-a", "kube-system", mine="yes")
    assert (await site.server.request("POST", "/api/v1/namespaces/kube-system/configmaps", mine)).status == 201
    site.write("a.yaml", config_map("one"))
    site.write("b.yaml", config_map("two"))
    async with site.controllers():
        await site.state("b", "Applied")
        assert (await site.parent("a"))["data"] == {"mine": "yes"} and not await site.config_map("one")
        assert (await site.server.request("DELETE", "/api/v1/namespaces/kube-system/configmaps/addon-a")).status == 200
        await site.state("a", "Applied")


async def test_kubectl_reads_the_applyset_and_leaves_it_to_its_tool(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECTL_APPLYSET", "true")
    site.write("a.yaml", config_map("one"))
    async with site.controllers():
        await site.state("a", "Applied")
        selector = f"{PART_OF}={addon_identifier('a')}"
        shown = await site.server.kubectl("get", "configmaps", "-A", "-l", selector, "-o", "name")
        assert shown.stdout == "configmap/one\n"
        options = ("--prune", "--applyset=configmaps/addon-a", "-n", "kube-system")
        text = json.dumps(config_map("two"))
        done = await site.server.kubectl("apply", *options, "-f", "-", input=text, check=False)
        assert 'is managed by tooling "wherry" instead of "kubectl"' in done.stderr
        assert await site.config_map("one") and not await site.config_map("two")


async def test_metrics_are_not_served_where_they_are_disabled(tmp_path: Path) -> None:
    services = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
    for enabled in (True, False, True):
        async with api_server(tmp_path, resource_metrics=enabled) as server:
            expected = 200 if enabled else 404

            async def registered(server: ApiUnderTest = server, expected: int = expected) -> bool:
                return (await server.request("GET", services)).status == expected

            await eventually(registered)
            for path in ("/apis/metrics.k8s.io/v1beta1", "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io"):
                assert (await server.request("GET", path)).status == expected, path
            index = (await server.request("GET", "/openapi/v3")).json["paths"]
            assert ("apis/metrics.k8s.io/v1beta1" in index) is enabled
            groups = (await server.request("GET", "/apis")).json["groups"]
            assert ("metrics.k8s.io" in {group["name"] for group in groups}) is enabled
