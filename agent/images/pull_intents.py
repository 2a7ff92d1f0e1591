"""Records the pulls that may bring an image of which there is no pull record, so that it is not taken for a preloaded one.

- A pull has an intent on disk before the runtime is called. It is under way until one of three things happens. It failed and
  surely brought nothing: it is forgotten. It has a pull record: it is forgotten. Nobody knows what it brought or still brings
  (its pod was deleted, the agent restarted): it is abandoned.
- An abandoned pull is forgotten only after a list of images that was requested `ABANDONED_SECONDS` later, when that list has no
  undecided image that the pull may have brought. No other pull ends it, whatever its outcome.
- A pull may have brought an image only if the node did not have the image before without a record, and only under its own
  name or a digest of its repository. It may add such a name to any image.
- Pulls that may have brought an image when a list showed it undecided are suspects until they are forgotten, whatever names
  other pulls add to the image.

What follows from that for an image is decided in image_access.py. Names are as the runtime lists them: all spellings of a name
are one. Files and format are upstream's (pkg/kubelet/images/pullmanager), one file for a name, except for `preloadedImageRef`.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from agent.files.decoding import DamagedFileError, decode_json
from agent.images.names import is_id, spellings, with_registry, without_tag
from agent.images.open_pulls import OpenPulls, Pull
from agent.images.pull_record_files import API_VERSION, PullIntent, file_name, record_files
from kube.files import write_file

log = logging.getLogger(__name__)

ABANDONED_SECONDS = 900.0
"""Time in which the runtime is assumed to finish a pull that nobody waits for."""


class Origin(enum.Enum):
    """The origin of a listed image without a pull record."""

    PRELOADED = enum.auto()
    """No pull brought one of its names: an administrator did."""
    UNDECIDED = enum.auto()
    """A pull that is under way may have brought it."""
    PULLED = enum.auto()
    """An abandoned pull may have brought each of its names."""


class PullIntents:
    """The intents in `folder`. `load`, `begin` and `tidy` block; the others only look at memory."""

    def __init__(self, folder: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._monotonic = folder, monotonic
        self._open = OpenPulls()
        self._suspects: dict[str, tuple[Pull, ...]] = {}
        """By the ID of an image that a list has shown undecided: the pulls that may have brought it, under whatever name it is
        used since."""
        self._damaged: set[str] = set()
        """Names of damaged files: a present image of such a name may come from a pull without a record."""
        self._memory = threading.Lock()
        """Held for moments, also on the event loop: never over file operations."""
        self._files: dict[str, set[str]] = {}
        """Names of the files of a name: those of earlier versions are named after the pod's spelling."""
        self._writing = threading.Lock()
        """Held over file operations, in threads only."""

    def load(self, preloaded: frozenset[str] = frozenset()) -> None:
        """Read the last agent's intents: abandoned pulls. `preloaded` are the images that it knew for preloaded ones."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in record_files(self._folder):
            try:
                intent = decode_json(path, PullIntent)
            except (OSError, DamagedFileError) as error:
                log.error("%s: %s; pods have to pull the image again", path, error)
                self._damaged.add(path.name)
                continue
            before = intent.preloaded_image_ref
            name = with_registry(intent.image)
            self._files.setdefault(name, set()).add(path.name)
            self._open.abandon(Pull(name, before, preloaded | {before} - {""}), self._monotonic())

    def begin(self, image: str, before: str = "", present: frozenset[str] = frozenset(), namespace: str = "") -> Pull:
        """Write the intent of a pull. Raise OSError.

        `before` is the ID that the node has of its name, "" for none, and `present` are the IDs of all its images, both without
        those that have a pull record. Images that another pull may have brought under this name are not `before`.
        """
        name = with_registry(image)
        with self._memory:
            damaged = self._damaged & _files(image)
            if damaged or self._is_suspect(before) or any(before not in pull.present for pull in self._open.of(name)):
                before = ""
            pull = Pull(name, before, present | {before} - {""}, self._monotonic(), {namespace} - {""})
            if damaged:
                self._damaged -= damaged
                self._open.abandon(Pull(name, "", frozenset()), self._monotonic())
            self._open.add(pull)
        try:
            with self._writing:
                self._write(pull, damaged)
        except BaseException:
            self.end(pull)
            raise
        return pull

    def _write(self, pull: Pull, damaged: set[str]) -> None:
        files = self._files.setdefault(pull.name, set())
        files |= damaged
        file = file_name(pull.name)
        if file not in files or file in damaged:
            files.add(file)
            intent = PullIntent(
                kind="ImagePullIntent", api_version=API_VERSION, image=pull.name, preloaded_image_ref=pull.before
            )
            try:
                write_file(self._folder / file, msgspec.json.encode(intent), 0o600)
            except BaseException:
                files -= {file} - damaged
                raise

    def tidy(self) -> None:
        """Remove the files of pulls that have been forgotten."""
        with self._writing:
            with self._memory:
                kept = {pull.name for pull in self._open.all()}
            for name in self._files.keys() - kept:
                for file in self._files[name]:
                    (self._folder / file).unlink(missing_ok=True)
                del self._files[name]

    # -- what becomes of a pull ---------------------------------------------------------------------------------------
    def end(self, pull: Pull) -> None:
        """Forget a pull under way that brought nothing, or whose pull record is written."""
        with self._memory:
            if pull.abandoned_at is None:
                self._open.forget(pull)

    def abandon(self, pull: Pull) -> None:
        """Keep a pull of which nobody knows what it brought or still brings."""
        with self._memory:
            if pull.abandoned_at is None:
                self._open.abandon(pull, self._monotonic())

    def listed(self, present: frozenset[str], listed_at: float, undecided: Mapping[str, Sequence[str]]) -> None:
        """Take the IDs of all images, as listed after a moment of the clock, and the names of undecided ones by their IDs.

        Abandoned pulls end here: what they brought has been listed, and has a pull record unless it is undecided.
        """
        ended_before = min(listed_at, self._monotonic()) - ABANDONED_SECONDS
        tags = {name for names in undecided.values() for name in names if "@" not in name}
        digests = {name for names in undecided.values() for name in names if "@" in name}
        repositories = {without_tag(name) for name in digests}
        common: dict[frozenset[str], frozenset[str]] = {}  # many have the same
        with self._memory:
            self._suspects = {ref: pulls for ref, pulls in self._suspects.items() if ref in undecided}
            suspects = {pull.merged_into or pull for pulls in self._suspects.values() for pull in pulls}
            for pull in list(self._open.all()):
                over = pull.abandoned_at is not None and pull.abandoned_at <= ended_before
                needed = pull in suspects or pull.name in tags or without_tag(pull.name) in repositories
                if over and not needed:
                    self._open.forget(pull)
                elif pull.began > listed_at:  # the list may be older than an image that was there before the pull
                    continue
                elif pull.present in common:
                    pull.present = common[pull.present]
                else:
                    pull.present = common.setdefault(pull.present, pull.present & present)

    # -- what pulls may have brought ----------------------------------------------------------------------------------
    def concern(self, image: str, image_ref: str) -> bool:
        """Return whether a pull may have brought an image that a pod names so.

        The pod may use another tag than the pull, the digest, or the ID, of which the first digits are enough.
        """
        name = with_registry(image)
        repository = without_tag(name)
        if self._damaged and self._damaged & _files(name):
            return True
        with self._memory:
            pulls = self._open.all() if is_id(name) else self._open.of(f"{repository}@")
            return self._is_suspect(image_ref) or any(image_ref not in pull.present for pull in pulls)

    def origin(self, image_ref: str, names: Sequence[str]) -> Origin:
        """Return where a listed image without a pull record comes from.

        One without names is undecided until all pulls have ended that may be about to name it: a pulled one keeps the digest of
        its repository, so that it lost its only name to another image that was loaded.
        """
        is_damaged = bool(self._damaged) and any(self._damaged & _files(name) for name in names)
        wanted = {f"{without_tag(name)}@" if "@" in name else name for name in names}
        with self._memory:
            of_names = [list(self._open.of(name)) for name in wanted] if names else [list(self._open.all())]
            suspects = {p for pulls in of_names for p in pulls if image_ref not in p.present}
            suspects.update(p.merged_into or p for p in self._suspects.get(image_ref, ()) if p.is_open)
            self._suspects[image_ref] = tuple(suspects) if names else self._suspects.get(image_ref, ())
        if is_damaged:
            return Origin.UNDECIDED
        if not suspects or not all(any(pull.before != image_ref for pull in pulls) for pulls in of_names):
            return Origin.PRELOADED
        if names and all(any(pull.abandoned_at is not None for pull in pulls) for pulls in of_names):
            return Origin.PULLED
        return Origin.UNDECIDED

    def brought(self, name: str, image_ref: str) -> bool:
        """Return whether an image may have a listed name from a pull, although the node may have had the image before."""
        with self._memory:
            return any(pull.before != image_ref for pull in self._open.of(name))

    def namespaces(self, image_ref: str) -> list[str]:
        """Return the namespaces, as far as they are known, whose pulls may have brought an image that a list has shown."""
        with self._memory:
            pulls = {pull.merged_into or pull for pull in self._suspects.get(image_ref, ())}
            return sorted({namespace for pull in pulls for namespace in pull.namespaces})

    def _is_suspect(self, image_ref: str) -> bool:
        return any(pull.is_open for pull in self._suspects.get(image_ref, ()))


def _files(image: str) -> set[str]:
    """Return the names that the file of an image's intent may have."""
    return {file_name(spelling) for spelling in spellings(with_registry(image))} | {file_name(image)}
