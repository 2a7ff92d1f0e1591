"""Decides, by the pull records, whether a pod is allowed to use an image that is on the node (KEP-2535).

Without them a pod could use an image that another pod's secret has pulled, with pull policy IfNotPresent or Never. The record
of an image names the secrets (with a digest of their contents) and service accounts that have pulled it, or says that it needed
none or the node's own. A pod with none of them has to pull again, and the registry decides. An image without a record is a
preloaded one, unless it may come from a pull that did not end (pull_intents.py). Paths and formats of the files are upstream's
(pkg/kubelet/images/pullmanager).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from agent.files.decoding import DamagedFileError, decode_json
from agent.images.names import with_registry, without_tag
from agent.images.pull_intents import PullIntents
from agent.images.pull_record_files import (
    API_VERSION,
    MOST,
    MOST_NAMES,
    PulledRecord,
    Pullers,
    account,
    corrected,
    file_name,
    merge,
    pullers,
    record_files,
    secret,
)
from agent.images.registry_auth import ACCOUNT, SECRET, Credential
from kube.files import write_file

log = logging.getLogger(__name__)

Policy = Literal["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"]
POLICIES: tuple[str, ...] = get_args(Policy)


class ImageAccess:
    """The pull records below `folder`, kept in memory too; `now` returns an RFC 3339 time. Writing blocks, reading does not."""

    def __init__(
        self,
        folder: Path,
        now: Callable[[], str],
        policy: str = "NeverVerifyPreloadedImages",
        allowlist: Sequence[str] = (),
    ) -> None:
        self._pulled = folder / "pulled"
        self._now, self._policy, self._allowlist = now, policy, allowlist
        self._records: dict[str, PulledRecord] = {}
        self._intents = PullIntents(folder / "pulling")
        self._listed: frozenset[str] = frozenset()
        """IDs of the images that were on the node when they were listed last."""
        self._noted: dict[str, float] = {}
        """By image: when its record was written last, by `time.monotonic`."""
        self._changing = threading.RLock()
        """Held while records are written or removed: pulls and collections do so in threads."""
        self._damaged: set[str] = set()
        """Names of damaged record files: their images are allowed to no pod until they are pulled again."""

    def load(self) -> None:
        """Read the last agent's records; a damaged record allows no pod."""
        self._pulled.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in record_files(self._pulled):
            try:
                record = corrected(decode_json(path, PulledRecord))
                self._records[record.image_ref] = record
            except (OSError, DamagedFileError) as error:
                log.error("%s: %s; pods have to pull the image again", path, error)
                self._damaged.add(path.name)
        self._intents.load()

    def load_finished_pulls(self, present: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Turn the last agent's intents into records where the image is present: (ID, its names)."""
        present = list(present)
        self._listed = frozenset(image_ref for image_ref, _ in present)
        self._complete(self._intents.ended(present, even_recent=True))

    def _complete(self, pulls: Iterable[tuple[str, str]]) -> None:
        """Write records of pulls that nobody waited for and that brought an image (name, ID), and remove their intents."""
        for image, image_ref in pulls:
            if not image_ref or self._try_write(image, image_ref, None):
                self._intents.remove(image)

    # -- pulls --------------------------------------------------------------------------------------------------------
    def begin(self, image: str, before: str = "", now: float = float("-inf")) -> None:
        """Write an intent: an image is being pulled, from `now` on by the wall clock.

        `before` is the ID that the node has of its name, "" for none.
        """
        self._intents.begin(image, before if self._is_preloaded(before) else "", self._listed, now)

    def failed(self, image: str) -> None:
        """Remove the intent of a pull that has ended without the image."""
        self._intents.end(image)

    def abandoned(self, image: str) -> None:
        """Keep the intent of a pull that was abandoned: should the image be pulled all the same, it is not open to all."""
        self._intents.abandon(image)

    def pulled(
        self,
        image: str,
        image_ref: str,
        credential: Credential | None,
        names: Iterable[str] = (),
        *,
        created: float = float("inf"),
    ) -> None:
        """Record the credentials that pulled an image; None is without credentials. Raise OSError.

        `names` are those that the runtime lists for it after the pull. Under the names that a preloaded image had before, it
        stays open to all: anybody could pull it under another name. `created` is when the runtime recorded its ID first, by the
        wall clock: an image that the pull brought is open under no name.
        """
        with self._changing:  # another pull that brings the same image is recorded before or after this one, as a whole
            self._noted[image_ref] = time.monotonic()
            try:
                if self._is_preloaded(image_ref) and self._intents.had(image, image_ref, created):
                    for name in names:
                        if not self._intents.brought(name, image_ref):
                            self._write_changed(name, image_ref, Pullers(node_pods_accessible=True))
                self._write_changed(image, image_ref, pullers(credential))
            except BaseException:
                self._intents.abandon(image)  # without a record, it keeps the image closed
                raise
            self._intents.end(image)

    def _try_write(self, image: str, image_ref: str, who: Pullers | None) -> bool:
        """Write a record; return whether that succeeded. Without it, pods have to pull the image again."""
        with self._changing:
            self._noted[image_ref] = time.monotonic()
            try:
                self._write_changed(image, image_ref, who)
            except OSError as error:
                log.warning("writing the pull record of %s: %s", image, error)
                return False
            return True

    def _write_changed(self, image: str, image_ref: str, who: Pullers | None) -> None:
        record = self._records.get(image_ref)
        if record is None:
            record = PulledRecord(
                kind="ImagePulledRecord", api_version=API_VERSION, last_updated_time="", image_ref=image_ref
            )
        elif who is None:
            return
        if who is not None:
            name = with_registry(without_tag(image))
            if name not in record.credential_mapping and len(record.credential_mapping) >= MOST_NAMES:
                return  # pods that use this name pull again
            merged = merge(record.credential_mapping.get(name), who)
            if merged == record.credential_mapping.get(name) and record.last_updated_time:
                return
            record = msgspec.structs.replace(record, credential_mapping={**record.credential_mapping, name: merged})
        record = msgspec.structs.replace(record, api_version=API_VERSION, last_updated_time=self._now())
        write_file(self._pulled / file_name(image_ref), msgspec.json.encode(record), 0o600)
        self._records[image_ref] = record
        self._damaged.discard(file_name(image_ref))

    def prune(self, present: Iterable[tuple[str, Sequence[str]]], listed_at: float = float("inf")) -> None:
        """Forget the images that are no longer there; takes the IDs and names of those that are, as listed after `listed_at`.

        That is a moment of `time.monotonic`: what was pulled since then may be missing from the list (upstream's
        PruneUnknownRecords).
        """
        present = list(present)
        self._listed = frozenset(image_ref for image_ref, _ in present)
        self._complete(self._intents.ended(present))
        with self._changing:
            self._prune(self._listed, listed_at)

    def _prune(self, kept: frozenset[str], listed_at: float) -> None:
        for image_ref in [ref for ref in self._records if ref not in kept]:
            if self._noted.get(image_ref, float("-inf")) >= listed_at:
                continue
            del self._records[image_ref]
            self._noted.pop(image_ref, None)
            with contextlib.suppress(FileNotFoundError):
                (self._pulled / file_name(image_ref)).unlink()
        for name in self._damaged - {file_name(image_ref) for image_ref in kept}:
            self._damaged.discard(name)
            with contextlib.suppress(OSError):
                (self._pulled / name).unlink()

    # -- permission to use an image ----------------------------------------------------------------------------------
    def open_to_all(self, image: str, image_ref: str) -> bool:
        """Return whether any pod may use a present image, whatever its credentials."""
        by_us = not self._is_preloaded(image_ref) or self._intents.concern(image, image_ref)
        if not self._must_verify(image, by_us=by_us):
            return True
        who = self._pullers_of(image, image_ref)
        return who is not None and who.node_pods_accessible

    def _pullers_of(self, image: str, image_ref: str) -> Pullers | None:
        """Return what has pulled an image under a name, in any spelling; records of earlier versions have the pod's."""
        record, name = self._records.get(image_ref), without_tag(image)
        mapping = record.credential_mapping if record is not None else {}
        return mapping.get(with_registry(name)) or mapping.get(name)

    def _is_preloaded(self, image_ref: str) -> bool:
        return image_ref not in self._records and file_name(image_ref) not in self._damaged

    def allows(self, image: str, image_ref: str, credentials: Sequence[Credential]) -> bool:
        """Return whether a pod with these credentials has pulled the image before; a changed secret is recorded."""
        who = self._pullers_of(image, image_ref)
        if who is None:
            return False
        places = {(known.uid, known.namespace, known.name) for known in who.kubernetes_secrets}
        hashes = {known.credential_hash for known in who.kubernetes_secrets} - {""}
        for credential in credentials:
            source = credential.source
            if source.kind == ACCOUNT and account(source) in who.kubernetes_service_accounts:
                return True
            if source.kind != SECRET:
                continue
            mine = secret(credential)
            if (mine.uid, mine.namespace, mine.name) in places or mine.credential_hash in hashes:
                if mine not in who.kubernetes_secrets and len(who.kubernetes_secrets) < MOST:
                    self._try_write(image, image_ref, Pullers(kubernetes_secrets=[mine]))
                return True
        return False

    def _must_verify(self, image: str, *, by_us: bool) -> bool:
        if self._policy == "NeverVerify":
            return False
        if self._policy == "NeverVerifyPreloadedImages":
            return by_us
        if self._policy == "NeverVerifyAllowlistedImages":
            return by_us or not any(_listed(without_tag(image), pattern) for pattern in self._allowlist)
        return True


def _listed(image: str, pattern: str) -> bool:
    """Match an entry of preloadedImagesVerificationAllowlist: a whole name, or all names below a path that ends in /*."""
    return image.startswith(pattern[:-1]) if pattern.endswith("/*") else image == pattern
