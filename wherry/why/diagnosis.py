"""Finds the causes of an object's state with the function of its kind, which may ask for those of another object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from kube.errors import StatusError
from kube.object_names import key_of
from wherry.errors import WherryError
from wherry.why.model import Cause, reference
from wherry.why.pacing import TimeSlice
from wherry.why.reading import Reader

T = TypeVar("T")
R = TypeVar("R")
MOST_DEPTH = 6
"""Limit of a chain of objects: a Service, a Deployment, a ReplicaSet, a pod, a claim, a node."""


class Diagnosis:
    """The causes of objects of one cluster. `reader` has the objects, `other` is the function of kinds without one."""

    def __init__(self, reader: Reader, finders: Mapping[type[Any], Finder], other: Finder) -> None:
        self.reader = reader
        self._finders, self._other = finders, other
        self._asked: list[tuple[type[Any], str]] = []
        self.time_slice = TimeSlice()
        self._prepared: dict[tuple[int, Any], tuple[object, Any]] = {}

    async def once(self, prepare: Callable[[Diagnosis, T], Awaitable[R]], obj: T) -> R:
        """Return what a function of a module returns for an object; it is called once for each object."""
        key = id(obj), prepare
        if key not in self._prepared:
            self._prepared[key] = obj, await prepare(self, obj)  # with the object: others cannot have its id then
        found: R = self._prepared[key][1]
        return found

    def is_asked(self, obj: Any) -> bool:
        """Return whether the causes of an object are being looked for: those of another one may not be found by it."""
        return (type(obj), key_of(obj)) in self._asked

    async def causes(self, obj: Any) -> Sequence[Cause]:
        """Return why an object is not as it should be, the most important cause first; nothing if it is."""
        asked = type(obj), key_of(obj)
        if asked in self._asked or len(self._asked) >= MOST_DEPTH:
            return ()
        finder = self._finders.get(type(obj), self._other)
        self._asked.append(asked)
        try:
            return await finder(self, obj)
        except (StatusError, WherryError, OSError):
            raise
        except (
            Exception
        ) as error:  # an object has what its finder does not expect: those of other objects may know more
            self.reader.note(
                f"why {reference(obj)} is as it is: {type(error).__name__}: {error} (a fault of wherry why)"
            )
            return ()
        finally:
            self._asked.pop()


Finder = Callable[[Diagnosis, Any], Awaitable[Sequence[Cause]]]
"""Finds the causes of the state of one object of a kind."""
