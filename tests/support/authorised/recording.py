"""Records of one request: questions to the authorizer, objects shown to admission, writes, and dialled addresses.

A record belongs to the task of its request by a context variable, which the tasks that the request starts inherit. What the
server does in its background tasks has no record. What it does in a request under its own identity is known by that identity.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from control.auth.user import AuthzAttributes, Decision
from control.interfaces.admission import Attributes
from control.registry import creation, deletion, updating
from control.registry.context import SERVER, Context
from control.registry.registry import Registry
from control.storage.store import Item, Store
from kube.json_object import Object
from tests.support.authorised.reads import Read, reader


class Question(NamedTuple):
    """Attributes of an authorization check, without the user."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """Only of requests that are for no resource."""

    def __str__(self) -> str:
        if not self.resource:
            return f"{self.verb} {self.path}"
        what = f"{self.resource}.{self.group}".rstrip(".") + (f"/{self.subresource}" if self.subresource else "")
        return f"{self.verb} {what} namespace={self.namespace!r} name={self.name!r}"


def question(attributes: AuthzAttributes) -> Question:
    a = attributes
    if not a.resource:
        return Question(a.verb, path=a.path)
    return Question(a.verb, a.group, a.resource, a.subresource, a.namespace, a.name)


@dataclass(frozen=True)
class Asked:
    """A question, by whom it was asked, and what the answer was."""

    user: str
    question: Question
    allowed: bool
    selectors: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Write:
    """One change of the store: `old` None if an object came to be, `new` None if it went."""

    key: str
    old: Object | None
    new: Object | None
    ttl: int
    identity: str
    """The user that the registry was given, "" for a write past it."""


@dataclass(frozen=True)
class Shown:
    """Objects that admission received at one moment."""

    phase: str
    operation: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    obj: Object | None
    old: Object | None
    options: str
    dry_run: bool
    user: str


@dataclass
class Dial:
    """A connection to a backend and what was sent on it."""

    host: str
    port: int
    sent: bytearray = field(default_factory=bytearray)


@dataclass
class Record:
    received: list[Asked] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    dials: list[Dial] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)

    def yes(self, user: str) -> list[Question]:
        return [request.question for request in self.received if request.allowed and request.user == user]


CURRENT: ContextVar[Record | None] = ContextVar("record", default=None)
_ACTING: ContextVar[str] = ContextVar("acting", default="")
Rule = Callable[[AuthzAttributes], bool]


class RecordingAuthorizer:
    """Allows what `rule` says, and the server's own identity everything, which is not recorded."""

    def __init__(self) -> None:
        self.rule: Rule = lambda attributes: False

    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        record = CURRENT.get()
        if record is None or attributes.user.name == SERVER.name:
            return Decision.ALLOW, ""
        allowed = self.rule(attributes)
        selectors = (attributes.field_selector, attributes.label_selector)
        record.received.append(Asked(attributes.user.name, question(attributes), allowed, selectors))
        return (Decision.ALLOW if allowed else Decision.NO_OPINION), ""


def note_read(key: str) -> None:
    """Record that the request that is under way reads a key."""
    record = CURRENT.get()
    if record is not None:
        record.reads.append(Read(key, reader()))


class RecordingStore:
    """A store whose changes are recorded, with what each of them replaced."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str) -> Item | None:
        note_read(key)
        return await self._store.get(key)

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        item = await self._store.create(key, value, ttl)
        self._note(key, None, value, ttl)
        return item

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        before = await self._store.get(key) if CURRENT.get() is not None else None
        item = await self._store.update(key, value, expected_revision, ttl)
        self._note(key, before, value, ttl)
        return item

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        before = await self._store.get(key) if CURRENT.get() is not None else None
        item = await self._store.delete(key, expected_revision)
        self._note(key, before, None, 0)
        return item

    def _note(self, key: str, before: Item | None, value: bytes | None, ttl: int) -> None:
        record = CURRENT.get()
        if record is not None:
            old = msgspec.json.decode(before.value) if before is not None else None
            new = msgspec.json.decode(value) if value is not None else None
            record.writes.append(Write(key, old, new, ttl, _ACTING.get()))


class RecordingAdmission:
    """A chain of admission whose callers are recorded with what they show, before the plugins see it."""

    def __init__(self, chain: Any) -> None:
        self._chain = chain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)

    async def admit(self, attributes: Attributes) -> None:
        self._note("admit", attributes)
        await self._chain.admit(attributes)

    async def validate(self, attributes: Attributes) -> None:
        self._note("validate", attributes)
        await self._chain.validate(attributes)

    def _note(self, phase: str, a: Attributes) -> None:
        record = CURRENT.get()
        if record is None:
            return
        obj, old = (None if o is None else msgspec.json.decode(msgspec.json.encode(o)) for o in (a.obj, a.old))
        resource = a.requested or a.resource
        record.shown.append(
            Shown(
                phase,
                a.operation,
                resource.group,
                resource.plural,
                a.subresource,
                a.namespace,
                a.name,
                obj,
                old,
                str(a.options.get("kind", "")),
                a.dry_run,
                a.user.name,
            )
        )


@contextlib.contextmanager
def writers_identified() -> Iterator[None]:
    """Let each write through a registry be recorded under the user that it was given."""
    verbs = ((creation, "create"), (updating, "update"), (deletion, "delete"))
    kept = [getattr(module, name) for module, name in verbs]
    for (module, name), work in zip(verbs, kept, strict=True):
        setattr(module, name, _identified(work))
    try:
        yield
    finally:
        for (module, name), work in zip(verbs, kept, strict=True):
            setattr(module, name, work)


def _identified(work: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    async def identified(registry: Registry, context: Context, *arguments: Any, **named: Any) -> Any:
        token = _ACTING.set(context.user.name)
        try:
            return await work(registry, context, *arguments, **named)
        finally:
            _ACTING.reset(token)

    return identified


@contextlib.contextmanager
def recording() -> Iterator[Record]:
    """Record what is done in this context."""
    record = Record()
    token = CURRENT.set(record)
    try:
        yield record
    finally:
        CURRENT.reset(token)
