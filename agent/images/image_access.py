"""Decides, by the pull records, whether a pod is allowed to use an image that is on the node (KEP-2535).

Without them a pod could use an image that another pod's secret has pulled, with pull policy IfNotPresent or Never. Two
promises: a pod uses an image that a pull brought only if a pull of this name has succeeded with its secret or account, or
without any; and nobody takes an image from others that was on the node before, or that an administrator loads. The rules:

- The record of an image has, for each of its names, the secrets (with a digest of their contents) and service accounts that
  have pulled it, or that it needed none or the node's own. The image is open under no other name.
- An image without a record is preloaded once a list of images shows it with a name that no pull may have brought
  (pull_intents.py), and stays so as long as it is listed, whatever is pulled later: it is open under all names. If a pull
  brings another name of it, the record opens those that it had.
- An image of which abandoned pulls may have brought all names gets a record that opens none.
- Until one of these is decided, it is closed under the repositories of pulls that may have brought it, and by its ID.

Paths and formats of the records are upstream's (pkg/kubelet/images/pullmanager); preloaded_images.py is Wherry's own.
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
from agent.images.preloaded_images import PreloadedImages
from agent.images.pull_intents import Origin, Pull, PullIntents
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
    """The pull records below `folder`, kept in memory too; `now` returns an RFC 3339 time.

    `open_to_all`, `failed` and `abandoned` only look at memory; the others block.
    """

    def __init__(
        self,
        folder: Path,
        now: Callable[[], str],
        policy: str = "NeverVerifyPreloadedImages",
        allowlist: Sequence[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pulled = folder / "pulled"
        self._now, self._policy, self._allowlist = now, policy, allowlist
        self._records: dict[str, PulledRecord] = {}
        self._monotonic = monotonic
        self._intents = PullIntents(folder / "pulling", monotonic)
        self._preloaded = PreloadedImages(folder / "preloaded.json")
        self._listed: frozenset[str] = frozenset()
        """IDs of the images without a record that were on the node when they were listed last, or that are preloaded."""
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
        self._preloaded.load()
        self._listed = self._preloaded.ids
        self._intents.load(self._preloaded.ids)

    def load_finished_pulls(
        self, present: Iterable[tuple[str, Sequence[str]]], listed_at: float = float("inf")
    ) -> None:
        """Decide which images the last agent's pulls have brought; takes the IDs and names of those that are present."""
        with self._changing:
            self._decide(list(present), listed_at)
        self.tidy()

    def _decide(self, present: Sequence[tuple[str, Sequence[str]]], listed_at: float) -> None:
        """Decide where listed images without a record come from."""
        preloaded, unwritten, undecided = set[str](), set[str](), dict[str, Sequence[str]]()
        for image_ref, names in present:
            if not self._is_without_record(image_ref):
                continue
            origin = Origin.PRELOADED
            if image_ref not in self._preloaded.ids:
                origin = self._intents.origin(image_ref, names)
            if origin == Origin.PRELOADED:
                preloaded.add(image_ref)
            elif origin == Origin.UNDECIDED:
                undecided[image_ref] = names
            elif not self._try_write(next(iter(names), ""), image_ref, None):
                unwritten.add(image_ref)
                undecided[image_ref] = names
        listed = frozenset(image_ref for image_ref, _ in present)
        self._listed = frozenset(filter(self._is_without_record, listed - unwritten))
        self._preloaded.replace(frozenset(preloaded))
        self._intents.listed(listed, listed_at, undecided)

    # -- pulls --------------------------------------------------------------------------------------------------------
    def begin(self, image: str, before: str = "") -> Pull:
        """Write an intent: an image is being pulled. `before` is the ID that the node has of its name. Raise OSError."""
        self.tidy()
        present = frozenset(filter(self._is_without_record, self._listed))
        return self._intents.begin(image, before if self._is_without_record(before) else "", present)

    def failed(self, pull: Pull) -> None:
        """Forget a pull that has ended and surely brought nothing; a later change removes its intent."""
        self._intents.end(pull)

    def abandoned(self, pull: Pull) -> None:
        """Keep a pull that may have brought its image, or may still: should it, the image is not open to all."""
        self._intents.abandon(pull)

    def tidy(self) -> None:
        """Remove the intents of pulls that have been forgotten."""
        try:
            self._intents.tidy()
        except OSError as error:
            log.warning("removing pull intents: %s", error)

    def pulled(
        self,
        pull: Pull,
        image: str,
        image_ref: str,
        credential: Credential | None,
        names: Iterable[str] = (),
        *,
        names_are_exact: bool = False,
        is_all: bool = True,
    ) -> None:
        """Record the credentials that pulled an image; None is without credentials. Raise OSError.

        `names` are those that the runtime lists for it after the pull. It stays open to all under those that it had and that no
        pull brought: anybody could pull it under another name. `names_are_exact`: the runtime lists an image under the name
        that is pulled, as `with_registry` spells it, so that no pull brings other ones; without it, only an image that was
        there before has such names. Without `is_all`, the pull may have brought another image before.
        """
        with self._changing:  # another pull that brings the same image is recorded before or after this one, as a whole
            self._noted[image_ref] = self._monotonic()
            try:
                if self._is_without_record(image_ref) and (names_are_exact or image_ref in pull.present):
                    for name in names:
                        if not self._intents.brought(name, image_ref):
                            self._write_changed(name, image_ref, Pullers(node_pods_accessible=True))
                self._write_changed(image, image_ref, pullers(credential))
            except BaseException:
                self._intents.abandon(pull)  # without a record, it keeps the image closed
                raise
            if is_all:
                self._intents.end(pull)
            else:
                self._intents.abandon(pull)
        self.tidy()

    def _try_write(self, image: str, image_ref: str, who: Pullers | None) -> bool:
        """Write a record; return whether that succeeded. Without it, pods have to pull the image again."""
        with self._changing:
            self._noted[image_ref] = self._monotonic()
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
        with self._changing:
            self._decide(present, listed_at)
            self._prune(frozenset(image_ref for image_ref, _ in present), listed_at)
        self.tidy()

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
        by_us = not self._is_preloaded(image, image_ref)
        if not self._must_verify(image, by_us=by_us):
            return True
        who = self._pullers_of(image, image_ref)
        return who is not None and who.node_pods_accessible

    def _pullers_of(self, image: str, image_ref: str) -> Pullers | None:
        """Return what has pulled an image under a name, in any spelling; records of earlier versions have the pod's."""
        record, name = self._records.get(image_ref), without_tag(image)
        mapping = record.credential_mapping if record is not None else {}
        return mapping.get(with_registry(name)) or mapping.get(name)

    def _is_preloaded(self, image: str, image_ref: str) -> bool:
        if not self._is_without_record(image_ref):
            return False
        return image_ref in self._preloaded.ids or not self._intents.concern(image, image_ref)

    def _is_without_record(self, image_ref: str) -> bool:
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
