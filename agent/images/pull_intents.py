"""Records the images that are being pulled: one whose pull outlived the agent or its pod is not taken for a preloaded one.

An intent is written before a pull begins. If the runtime may still finish a pull that nobody waits for, the intent stays for
`ABANDONED_SECONDS`. An image that the node already had before, without a pull record, stays preloaded as long as its ID does
not change: otherwise anybody could withdraw it from all others by an attempt to pull it. All spellings of a name have one
intent. Files and format are upstream's (pkg/kubelet/images/pullmanager), except for the field `preloadedImageRef`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agent.files.decoding import DamagedFileError, decode_json
from agent.images.names import with_registry, without_tag
from agent.images.pull_record_files import API_VERSION, PullIntent, file_name, record_files
from kube.files import write_file

log = logging.getLogger(__name__)

ABANDONED_SECONDS = 900.0
"""Time in which the runtime is assumed to finish a pull that nobody waits for."""


@dataclass(slots=True)
class _Intent:
    preloaded: str
    """ID of the image without a pull record that the node had before, "" for none."""
    present: frozenset[str] | None = None
    """IDs of images that the node had before; None for the last agent's pulls."""
    began: float = float("-inf")
    """Time at which the first of its pulls began, by the wall clock; unknown for the last agent's pulls."""
    pulls: int = 0
    """Pulls that are under way."""
    abandoned_at: float = float("-inf")
    files: set[str] = field(default_factory=set)
    """Names of its files: those of earlier versions are named after the pod's spelling of the image."""


class PullIntents:
    """The intents in `folder`, kept in memory too. Changes block."""

    def __init__(self, folder: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._monotonic = folder, monotonic
        self._intents: dict[str, _Intent] = {}
        """By the names of images as the runtime lists them."""
        self._damaged: set[str] = set()
        """Names of damaged files: a present image of such a name may come from a pull without a record."""
        self._changing = threading.RLock()
        """Held while intents change: pulls and collections do so in threads."""

    def load(self) -> None:
        """Read the last agent's intents: pulls that nobody waits for."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in record_files(self._folder):
            try:
                intent = decode_json(path, PullIntent)
                preloaded = intent.preloaded_image_ref
                found = self._intents.setdefault(with_registry(intent.image), _Intent(preloaded))
                found.preloaded = preloaded if found.preloaded == preloaded else ""
                found.abandoned_at = self._monotonic()
                found.files.add(path.name)
            except (OSError, DamagedFileError) as error:
                log.error("%s: %s; pods have to pull the image again", path, error)
                self._damaged.add(path.name)

    def begin(
        self, image: str, preloaded: str = "", present: frozenset[str] = frozenset(), now: float = float("-inf")
    ) -> None:
        """Write the intent of a pull; `preloaded` is the ID of the image without a pull record that the node has of its name.

        `present` are the IDs of its images, as far as they are known; `now` is by the wall clock.
        """
        name = with_registry(image)
        with self._changing:
            found = self._intents.get(name)
            if found is None:
                damaged = self._damaged & _files(image)
                preloaded = "" if damaged else preloaded
                intent = PullIntent(
                    kind="ImagePullIntent", api_version=API_VERSION, image=name, preloaded_image_ref=preloaded
                )
                write_file(self._folder / file_name(name), msgspec.json.encode(intent), 0o600)
                found = self._intents[name] = _Intent(preloaded, None if damaged else present, now)
                found.files = damaged | {file_name(name)}
                if damaged:  # as for a pull of the last agent, which the runtime may finish
                    found.abandoned_at, found.began = self._monotonic(), float("-inf")
                    self._damaged -= damaged
            found.pulls += 1

    def end(self, image: str) -> None:
        """Remove the intent of a pull that is done with, unless it is another pull's too."""
        name = with_registry(image)
        with self._changing:
            found = self._intents.get(name)
            if found is not None:
                found.pulls -= 1
                if found.pulls <= 0 and not self._may_continue(found):
                    self._drop(name)

    def abandon(self, image: str) -> None:
        """Keep the intent of a pull that nobody waits for and the runtime may finish."""
        with self._changing:
            found = self._intents.get(with_registry(image))
            if found is not None:
                found.pulls, found.abandoned_at = max(0, found.pulls - 1), self._monotonic()

    def concern(self, image: str, image_ref: str) -> bool:
        """Return whether a present image may come from a pull without a record, also under another tag or by its digest."""
        name = with_registry(image)
        found = self._intents.get(name)
        if self._damaged & _files(image) or (found is not None and found.preloaded != image_ref):
            return True
        repository = without_tag(name)
        with self._changing:
            return any(
                image_ref not in intent.present and image_ref != intent.preloaded
                for other, intent in self._intents.items()
                if without_tag(other) == repository and intent.present is not None
            )

    def had(self, image: str, image_ref: str, created: float) -> bool:
        """Return whether the node had an image of an ID before the pull of a name began.

        `created` is when the runtime recorded the ID first, by the wall clock: images may be imported since they were listed.
        """
        found = self._intents.get(with_registry(image))
        return found is not None and (
            found.preloaded == image_ref or image_ref in (found.present or ()) or created < found.began
        )

    def brought(self, name: str, image_ref: str) -> bool:
        """Return whether an image may have a name, as the runtime lists it, from a pull that has an intent.

        A pull brings the tag and the digest of its repository.
        """
        with self._changing:
            return any(
                intent.preloaded != image_ref
                and (without_tag(other) == without_tag(name) if "@" in name else other == name)
                for other, intent in self._intents.items()
            )

    def ended(
        self, present: Iterable[tuple[str, Sequence[str]]], *, even_recent: bool = False
    ) -> list[tuple[str, str]]:
        """Return the images whose pulls the runtime does not finish any more, each with the ID that it got, "" for none.

        `present` has the IDs and names of the node's images; `even_recent` includes pulls that were abandoned a moment ago.
        """
        ids = {name: image_ref for image_ref, names in present for name in names}
        found: list[tuple[str, str]] = []
        with self._changing:
            for name, intent in self._intents.items():
                if not intent.pulls and (even_recent or not self._may_continue(intent)):
                    image_ref = ids.get(name, "")
                    found.append((name, "" if image_ref == intent.preloaded else image_ref))
        return found

    def remove(self, image: str) -> None:
        """Remove the intent of a pull that ended, unless another one has begun."""
        with self._changing:
            name = with_registry(image)
            found = self._intents.get(name)
            if found is not None and not found.pulls:
                self._drop(name)

    def _may_continue(self, intent: _Intent) -> bool:
        return self._monotonic() - intent.abandoned_at < ABANDONED_SECONDS

    def _drop(self, name: str) -> None:
        for file in self._intents.pop(name).files:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / file).unlink()


def _files(image: str) -> set[str]:
    """Return the names that the file of an image's intent may have."""
    return {file_name(image), file_name(with_registry(image))}
