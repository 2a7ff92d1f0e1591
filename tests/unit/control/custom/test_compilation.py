"""Compilation of definitions and their rules: threads that do it, and what is served if it is stopped."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

import control.cel
from control.custom import building
from control.custom.definitions import DEFINITIONS, Definitions
from control.event_loop import inline
from control.openapi.documents import Documents
from control.schemas import rulechecks, rules
from control.server.discovery import Discovery
from control.storage.entry import Entry
from kube.errors import StatusError
from tests.support.custom_resources import definition, version

LONG_RULE = "self.spec.replicas < 10 && " + " && ".join(["self.spec.replicas > 0"] * 10)


class Stopped(BaseException):
    """Stands for the exception that stops a step or a thread."""


class Cache:
    """The definitions of a server."""

    def __init__(self) -> None:
        self.changed = 0
        self._entries: dict[str, Entry] = {}

    def put(self, made: dict[str, Any]) -> None:
        self.changed += 1
        name = made["metadata"]["name"]
        status = {"conditions": [{"type": "Established", "status": "True"}], "acceptedNames": made["spec"]["names"]}
        metadata = {**made["metadata"], "uid": name, "resourceVersion": str(self.changed)}
        data = json.dumps({**made, "metadata": metadata, "status": status}).encode()
        self._entries[name] = Entry(DEFINITIONS.key("", name), self.changed, data, lambda obj: {})

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key.rpartition("/")[2])

    def list(self) -> Any:
        return SimpleNamespace(entries=[*self._entries.values()])


class Registry:
    def __init__(self) -> None:
        self.cache = Cache()

    def cached(self, resource: Any) -> Cache:
        return self.cache

    def renew(self, resource: Any) -> None:
        """Nothing is watched."""

    def drop(self, resource: Any) -> None:
        """Nothing is cached."""


class Server:
    """Definitions of some kinds, whose compilation fails for those in `broken`; `threads` are those that compiled them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
        registry = Registry()
        self.cache, self.definitions = registry.cache, Definitions(cast(Any, registry), cast(Any, None))
        self.discovery, self.documents = Discovery((), self.definitions), Documents(())
        self.broken: dict[str, int] = {}
        """Number of attempts to compile a definition that will be stopped, by kind."""
        self.threads: list[str] = []
        build = building.build

        def compiling(made: dict[str, Any], webhooks: Any) -> Any:
            kind = made["spec"]["names"]["kind"]
            self.threads.append(threading.current_thread().name)
            if self.broken.get(kind):
                self.broken[kind] -= 1
                raise Stopped
            return build(made, webhooks)

        monkeypatch.setattr(building, "build", compiling)
        for kind in kinds:
            self.cache.put(definition(kind, group=f"{kind.lower()}.example.com"))

    def shown(self) -> set[str]:
        """Return the kinds in discovery, which are those in the OpenAPI documents."""
        kinds = {resource.kind for resources in self.discovery.by_version.values() for resource in resources}
        self.documents.follow(self.definitions)
        assert {f"{kind.lower()}.example.com" for kind in kinds} == {
            root.split("/")[1] for root in self.documents.index()["paths"]
        }
        return kinds


@pytest.mark.parametrize("prepared", [False, True])
async def test_a_definition_whose_compilation_is_stopped_twice_is_left_out_and_no_other(
    monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    server = Server(monkeypatch, "First", "Slow", "Last")
    server.broken["Slow"] = 1000
    for _ in range(2):
        with pytest.raises(Stopped):
            await server.definitions.prepare() if prepared else server.shown()
    if prepared:
        await server.definitions.prepare()
    assert server.shown() == {"First", "Last"}
    server.cache.put(definition("More", group="more.example.com"))
    assert server.shown() == {"First", "Last", "More"}
    assert server.broken["Slow"] == 998  # and not once for each request
    server.broken["Slow"] = 0
    server.cache.put(definition("Slow", version(deprecated=True), group="slow.example.com"))
    assert server.shown() == {"First", "Slow", "Last", "More"}


async def test_what_is_compiled_in_a_step_that_is_stopped_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, "First", "Last")
    server.broken["Last"] = 1
    with pytest.raises(Stopped):
        server.shown()
    assert server.shown() == {"First", "Last"} and len(server.threads) == 3


async def test_large_definitions_are_compiled_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, "Small")
    large = version()
    large["schema"]["openAPIV3Schema"]["description"] = "x" * 100_000
    server.cache.put(definition("Large", large, group="large.example.com"))
    await server.definitions.prepare()
    here = threading.current_thread().name
    assert server.threads[0] == here != server.threads[1]
    assert server.shown() == {"Small", "Large"} and len(server.threads) == 2
    server.cache.put(definition("Large", large, version("v2", storage=False), group="large.example.com"))
    found = await server.definitions.find_prepared("large.example.com", "v2", "larges")
    assert found is not None and server.threads[2] == server.threads[1]


# -- rules --------------------------------------------------------------------------------------------------------------
def with_rules(*texts: str) -> dict[str, Any]:
    made = version()
    made["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": text} for text in texts]
    return made


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    compiled: list[str] = []
    compile_cel = control.cel.compile

    def compiling(text: str, declared: Any) -> Any:
        program = compile_cel(text, declared)
        compiled.append(text)
        return program

    monkeypatch.setattr(rules, "compile_cel", compiling)
    return compiled


def an_object() -> dict[str, Any]:
    return {
        "apiVersion": "foo.example.com/v1",
        "kind": "Foo",
        "metadata": {"name": "a"},
        "spec": {"cronSpec": "*", "replicas": 2},
    }


async def strategy_of(server: Server, rule: str) -> Any:
    server.cache.put(definition("Foo", with_rules(rule), group="foo.example.com"))
    found = await server.definitions.find_prepared("foo.example.com", "v1", "foos")
    assert found is not None
    return found.strategy


async def test_rules_are_compiled_once_when_an_object_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    server, compiled = Server(monkeypatch), counted(monkeypatch)
    strategy = await strategy_of(server, LONG_RULE)
    assert server.shown() == {"Foo"} and compiled == []
    with pytest.raises(inline.TooMuchHere):
        inline.limited(strategy.validate, an_object())
    assert compiled == []
    assert strategy.validate(an_object()) == [] == inline.limited(strategy.validate, an_object())
    assert compiled == [LONG_RULE]
    assert len(strategy.validate({**an_object(), "spec": {"cronSpec": "*", "replicas": 10}})) == 1


async def test_rules_that_took_too_long_are_not_compiled_for_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = 0
    compile_cel = control.cel.compile

    def stopped(text: str, declared: Any) -> Any:
        nonlocal begun
        begun += 1
        raise Stopped

    strategy = await strategy_of(Server(monkeypatch), LONG_RULE)
    monkeypatch.setattr(rules, "compile_cel", stopped)
    with pytest.raises(Stopped):
        strategy.validate(an_object())
    for _ in range(3):
        with pytest.raises(StatusError, match="could not be compiled in time") as refused:
            inline.limited(strategy.validate, an_object())
        assert refused.value.code == 500
    assert begun == 1
    monkeypatch.setattr(rules, "compile_cel", compile_cel)
    monkeypatch.setattr(rules, "RETRY_SECONDS", 0)
    assert strategy.validate(an_object()) == []


def test_rules_of_a_definition_are_charged_when_it_is_validated() -> None:
    short, long = (
        {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": rule}]}}}
        for rule in ("1 == 1", f"1 == 1 {'&& 1 == 1 ' * 20}")
    )
    assert inline.limited(rulechecks.check, short, "S") == []
    with pytest.raises(inline.TooMuchHere):
        inline.limited(rulechecks.check, long, "S")
    assert rulechecks.check(long, "S") == []
