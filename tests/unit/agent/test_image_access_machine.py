"""Pulls, loads, lists of images and restarts in generated orders, beside a model of who may use which image under which name.

The model knows what the agent does not: which image each pull brings, when, and which ones an administrator loads.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.images import pull_records
from agent.images.image_access import ImageAccess
from agent.images.loaded_images import is_open
from agent.images.names import LOADED, without_tag
from agent.images.open_pulls import Pull
from agent.images.pull_intents import ABANDONED_SECONDS
from cri.client import Client
from cri.containerd_service import ImageName
from tests.support.image_records import NOW, by_secret

IDS = [f"sha256:{digit * 64}" for digit in "abc"]
NAMES = ["r.test/a:1", "r.test/a:2", "r.test/b:1"]
WHO = ["owner", "other", None]
FILLING = ["t.test/x:1", "t.test/y:1"]
"""Names in a tenant's registry, as many as an image's record may have here."""


def result(call: Coroutine[Any, Any, bool]) -> bool:
    """Run a coroutine that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as ended:
        return bool(ended.value)
    raise AssertionError("it waits")


@dataclass(eq=False)
class Try:
    """A pull: what the runtime does for it, and what the agent knows."""

    name: str
    who: str | None
    pull: Pull
    brought: str = ""
    abandoned_at: float | None = None


@dataclass(eq=False)
class Load:
    """An image that an administrator has loaded without a label: it is to stay open under this name."""

    image_ref: str
    name: str
    at: float
    suspects: set[Try] = field(default_factory=set)
    """Pulls of this name that may have brought it, as far as the agent can know."""
    seen: bool = False
    decided: bool = False


class Node(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.now = 0.0
        self.images: dict[str, set[str]] = {}
        self.tries: list[Try] = []
        self.loads: list[Load] = []
        self.public: set[str] = set()
        self.granted: set[tuple[str, str, str | None]] = set()
        self.labels: dict[str, set[str]] = {}
        self.taken: tuple[list[tuple[str, list[str]]], float] | None = None
        self.inspected: dict[str, tuple[str, int]] = {}
        self.most_names = mock.patch.object(pull_records, "MOST_NAMES", len(FILLING))
        self.most_names.start()
        self._start_agent()

    def teardown(self) -> None:
        self.most_names.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_agent(self) -> None:
        self.records = ImageAccess(self.folder, lambda: NOW, monotonic=lambda: self.now)
        self.records.load()
        self.inspected.clear()

    # -- the runtime --------------------------------------------------------------------------------------------------
    def _tag(self, image_ref: str, *names: str) -> None:
        for name in names:
            for others in self.images.values():
                others.discard(name)
            self.loads = [load for load in self.loads if load.name != name or load.image_ref == image_ref]
        self.images.setdefault(image_ref, set()).update(names)

    def _id_of(self, name: str) -> str:
        return next((image_ref for image_ref, names in self.images.items() if name in names), "")

    def _has_record(self, image_ref: str) -> bool:
        return not self.records._records.lacks(image_ref)

    async def image_name(self, name: str) -> ImageName | None:
        labels = {f"{LOADED}{loaded}": "true" for loaded in self.labels.get(name, ())}
        return ImageName(name, "", 0.0, pinned=False, labels=labels) if name in self.images else None

    def _is_open(self, name: str, image_ref: str) -> bool:
        runtime = cast(Client, SimpleNamespace(containerd=self))
        return result(is_open(runtime, self.records, name, image_ref))

    @rule(image_ref=st.sampled_from(IDS), name=st.sampled_from(NAMES))
    def load(self, image_ref: str, name: str) -> None:
        is_new = image_ref not in self.images
        if self._has_record(image_ref) if is_new else image_ref not in self.public:
            return  # loading does not publish what was pulled; the administrator removes it first
        self._tag(image_ref, name)
        self.public.add(image_ref)
        if is_new:
            suspects = {one for one in self.tries if one.name == name}
            self.loads.append(Load(image_ref, name, self.now, suspects))

    @rule(image_ref=st.sampled_from(IDS), name=st.sampled_from(NAMES))
    def load_labelled(self, image_ref: str, name: str) -> None:
        """An administrator publishes an image under a name, whatever has pulled it; one without a record under all names."""
        self._tag(image_ref, name)
        self.labels.setdefault(image_ref, set()).add(name)
        if not self._has_record(image_ref):
            self.public.add(image_ref)

    @rule(name=st.sampled_from(NAMES))
    def remove_name(self, name: str) -> None:
        """An administrator removes a name with `wherry image rm`: what was loaded with it is private again."""
        for labels in self.labels.values():
            labels.discard(name)
        for names in self.images.values():
            names.discard(name)
        self.loads = [load for load in self.loads if load.name != name]

    @precondition(lambda self: self.tries)
    @rule(data=st.data(), image_ref=st.sampled_from(IDS))
    def bring(self, data: st.DataObject, image_ref: str) -> None:
        """The runtime finishes a pull, whether anybody waits for it or not."""
        one = data.draw(st.sampled_from(self.tries))
        if one.brought or (one.abandoned_at is not None and self.now - one.abandoned_at >= ABANDONED_SECONDS):
            return
        self._bring(one, image_ref)

    def _bring(self, one: Try, image_ref: str) -> None:
        one.brought = image_ref
        self._tag(image_ref, one.name, f"{without_tag(one.name)}@{image_ref}")

    # -- the agent ----------------------------------------------------------------------------------------------------
    @rule(name=st.sampled_from(NAMES))
    def inspect(self, name: str) -> None:
        self.inspected[name] = self._id_of(name), self.records.removals

    @precondition(lambda self: any(map(self._id_of, NAMES)))
    @rule(data=st.data(), who=st.sampled_from(WHO))
    def pull_a_collected_image_again(self, data: st.DataObject, who: str | None) -> None:
        """An image is collected between its inspection and its pull, which generated orders of single steps rarely do."""
        name = data.draw(st.sampled_from([name for name in NAMES if self._id_of(name)]))
        image_ref = self._id_of(name)
        self.inspect(name)
        self._collect(image_ref)
        self.begin(name, who)
        self._bring(self.tries[-1], image_ref)

    @rule(name=st.sampled_from(NAMES), who=st.sampled_from(WHO))
    def begin(self, name: str, who: str | None) -> None:
        before, as_of = self.inspected.pop(name, (self._id_of(name), self.records.removals))
        one = Try(name, who, self.records.begin(name, before, as_of))
        self.tries.append(one)
        for load in self.loads:
            if load.name == name and not load.seen:
                load.suspects.add(one)

    def _waiting(self, data: st.DataObject, *, brought: bool | None) -> Try | None:
        found = [one for one in self.tries if one.abandoned_at is None and brought in (None, bool(one.brought))]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        if (one := self._waiting(data, brought=True)) is not None:
            self._answer(one)

    def _answer(self, one: Try) -> None:
        if one.brought not in self.images:
            one.abandoned_at = self.now
            self.records.abandoned(one.pull)
            return
        self.tries.remove(one)
        credential = by_secret(one.who, one.who) if one.who else None
        names = sorted(self.images[one.brought])
        self.records.pulled(one.pull, one.name, one.brought, credential, names, names_are_exact=True)
        self.granted.add((one.brought, without_tag(one.name), one.who))
        self.loads = [
            load
            for load in self.loads
            if load.decided or (one not in load.suspects and (load.image_ref != one.brought or not load.suspects))
        ]

    def _pull(self, name: str, who: str | None, image_ref: str) -> None:
        self.begin(name, who)
        self._bring(self.tries[-1], image_ref)
        self._answer(self.tries[-1])

    @rule(image_ref=st.sampled_from(IDS), name=st.sampled_from(NAMES), who=st.sampled_from(WHO), late=st.booleans())
    def load_before_or_during_a_pull(self, image_ref: str, name: str, who: str | None, *, late: bool) -> None:
        if not late:
            self.load_labelled(image_ref, name)
        self.begin(name, who)
        if late:
            self.load_labelled(image_ref, name)
        self._bring(self.tries[-1], image_ref)
        self._answer(self.tries[-1])

    @rule(image_ref=st.sampled_from(IDS), name=st.sampled_from(NAMES), who=st.sampled_from(WHO))
    def load_after_a_list_was_requested(self, image_ref: str, name: str, who: str | None) -> None:
        """The list removes another image's record while a pull begins."""
        removed = IDS[IDS.index(image_ref) - 1]
        self._pull(FILLING[0], who, removed)
        self._remove(removed)
        self.request_list()
        self.load_labelled(image_ref, name)
        self.inspect(name)
        self.receive_list()
        self._pull(name, who, image_ref)

    @rule(image_ref=st.sampled_from(IDS), who=st.sampled_from(WHO))
    def fill_a_record_with_names(self, image_ref: str, who: str | None) -> None:
        for name in FILLING:
            self._pull(name, who, image_ref)

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        if (one := self._waiting(data, brought=False)) is not None:
            self.tries.remove(one)
            self.records.failed(one.pull)
            self.records.tidy()
            for load in self.loads:
                load.suspects.discard(one)

    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        if (one := self._waiting(data, brought=None)) is not None:
            one.abandoned_at = self.now
            self.records.abandoned(one.pull)

    @rule(seconds=st.sampled_from([1.0, 300.0, ABANDONED_SECONDS - 1, ABANDONED_SECONDS]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def request_list(self) -> None:
        self.taken = [(image_ref, sorted(names)) for image_ref, names in self.images.items()], self.now
        self.now += 0.5

    @precondition(lambda self: self.taken is not None)
    @rule()
    def receive_list(self) -> None:
        assert self.taken is not None
        present, at = self.taken
        self.taken = None
        self.records.prune(present, at)
        self._listed(present, at)

    def _listed(self, present: list[tuple[str, list[str]]], at: float) -> None:
        names_of = dict(present)
        for load in [load for load in self.loads if load.at < at]:
            if load.name in names_of.get(load.image_ref, ()):
                load.seen = True
                load.decided = load.decided or not load.suspects
            elif not load.decided:  # no list has shown it with this name, which another image has now
                self.loads.remove(load)
        self.tries = [
            one for one in self.tries if one.abandoned_at is None or at - one.abandoned_at < ABANDONED_SECONDS
        ]

    @rule(listed=st.booleans())
    def restart(self, *, listed: bool) -> None:
        self._start_agent()
        self.taken = None
        for one in self.tries:
            one.abandoned_at = self.now
        self.now += 0.5
        if listed:
            present = [(image_ref, sorted(names)) for image_ref, names in self.images.items()]
            self.records.load_finished_pulls(present, self.now)
            self._listed(present, self.now)

    @precondition(lambda self: self.images)
    @rule(data=st.data())
    def collect(self, data: st.DataObject) -> None:
        """An image is removed, and the next list does not have it."""
        self._collect(data.draw(st.sampled_from(sorted(self.images))))

    def _remove(self, image_ref: str) -> None:
        del self.images[image_ref]
        self.labels.pop(image_ref, None)
        self.loads = [load for load in self.loads if load.image_ref != image_ref]

    def _collect(self, image_ref: str) -> None:
        self._remove(image_ref)
        self.now += 0.5
        self.request_list()
        self.receive_list()

    # -- what must hold -----------------------------------------------------------------------------------------------
    @invariant()
    def no_pod_uses_an_image_that_a_pull_without_its_credentials_has_brought(self) -> None:
        for image_ref, names in self.images.items():
            if image_ref in self.public:
                continue
            for name in [*names, image_ref, image_ref[:8]]:
                everybody = (image_ref, without_tag(name), None) in self.granted
                loaded = without_tag(name) in map(without_tag, self.labels.get(image_ref, ()))
                assert everybody or loaded or not self._is_open(name, image_ref), f"{image_ref} is open as {name}"
                for who in WHO[:2]:
                    may_use = everybody or (image_ref, without_tag(name), who) in self.granted
                    assert may_use or not self.records.allows(name, image_ref, [by_secret(str(who), str(who))])

    @invariant()
    def a_labelled_image_is_open(self) -> None:
        for image_ref, names in self.labels.items():
            for name in names & self.images[image_ref]:
                assert self._is_open(name, image_ref), f"{image_ref} as {name}"

    @invariant()
    def a_loaded_image_stays_open(self) -> None:
        for load in self.loads:
            if load.decided and load.name in self.images.get(load.image_ref, ()):
                assert self.records.open_to_all(load.name, load.image_ref), f"{load.image_ref} as {load.name}"


Node.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestNode = Node.TestCase
