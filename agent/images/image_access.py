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
- A name with which an administrator has loaded an image (loaded_images.py) opens it, whatever pulls did before or do later.
- Until one of these is decided, it is closed under the repositories of pulls that may have brought it, and by its ID.

Paths and formats of the records are upstream's (pkg/kubelet/images/pullmanager); preloaded_images.py is Wherry's own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from agent.images.open_pulls import Pull
from agent.images.preloaded_images import PreloadedImages
from agent.images.pull_intents import Origin, PullIntents
from agent.images.pull_record_files import MOST, Pullers, matching, pullers, secret
from agent.images.pull_records import PullRecords
from agent.images.registry_auth import SECRET, Credential
from agent.images.verification import Verification

log = logging.getLogger(__name__)

Listed = Iterable[tuple[str, Sequence[str]]]
"""IDs and names of the images that the runtime lists."""


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
        closed: Callable[[str, str, Sequence[str]], None] = lambda name, image_ref, namespaces: None,
    ) -> None:
        """`closed` is called in a thread with the name and ID of an image that a record closes, and its pulls' namespaces."""
        self._policy, self._closed = Verification(policy, allowlist), closed
        self._records = PullRecords(folder / "pulled", now, monotonic)
        self._intents = PullIntents(folder / "pulling", monotonic)
        self._preloaded = PreloadedImages(folder / "preloaded.json")
        self._listed: frozenset[str] = frozenset()
        """IDs of the images without a record that were on the node when they were listed last, or that are preloaded."""
        self._changing = threading.RLock()
        """Held while records are written or removed: pulls and collections do so in threads."""

    def load(self) -> None:
        """Read the last agent's records; a damaged record allows no pod."""
        self._records.load()
        self._preloaded.load()
        self._listed = self._preloaded.ids
        self._intents.load(self._preloaded.ids)

    def load_finished_pulls(self, present: Listed, listed_at: float = float("inf")) -> None:
        """Decide which images the last agent's pulls have brought; takes the IDs and names of those that are present."""
        with self._changing:
            self._decide(list(present), listed_at)
        self.tidy()

    def _decide(self, present: Sequence[tuple[str, Sequence[str]]], listed_at: float) -> None:
        """Decide where listed images without a record come from."""
        preloaded, unwritten, undecided = set[str](), set[str](), dict[str, Sequence[str]]()
        for image_ref, names in present:
            if not self._records.lacks(image_ref):
                continue
            origin = Origin.PRELOADED
            if image_ref not in self._preloaded.ids:
                origin = self._intents.origin(image_ref, names)
            if origin == Origin.PRELOADED:
                preloaded.add(image_ref)
            elif origin == Origin.UNDECIDED:
                undecided[image_ref] = names
            elif self._try_write(names[0], image_ref, None):
                self._closed(names[0], image_ref, self._intents.namespaces(image_ref))
            else:
                unwritten.add(image_ref)
                undecided[image_ref] = names
        listed = frozenset(image_ref for image_ref, _ in present)
        self._listed = frozenset(filter(self._records.lacks, listed - unwritten))
        self._preloaded.replace(frozenset(preloaded))
        self._intents.listed(listed, listed_at, undecided)

    # -- pulls --------------------------------------------------------------------------------------------------------
    @property
    def removals(self) -> int:
        """Number of lists of images for which records have been removed; read it before an image that is `before` a pull."""
        return self._records.removals

    def begin(self, image: str, before: str = "", as_of: int | None = None, namespace: str = "") -> Pull:
        """Write an intent: an image is being pulled. Raise OSError.

        `before` is the ID that the node has of its name, `as_of` the removals when that was read. If records have been removed
        since, its own may be among them: such an image is not open to all if the pull brings it again.
        """
        self.tidy()
        present = frozenset(filter(self._records.lacks, self._listed))
        is_of_record = not self._records.lacks(before)
        is_outdated = as_of not in (None, self.removals) and before not in self._preloaded.ids
        return self._intents.begin(image, "" if is_of_record or is_outdated else before, present, namespace)

    def had(self, pull: Pull, image_ref: str) -> bool:
        """Return whether a pull that has failed did not bring an image, or one whose record says who may use it."""
        return image_ref in pull.present or not self._records.lacks(image_ref)

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
            try:
                if names_are_exact or image_ref in pull.present:
                    self._keep_open(image_ref, names)
                self._records.write(image, image_ref, pullers(credential))
            except BaseException:
                self._intents.abandon(pull)  # without a record, it keeps the image closed
                raise
            if is_all:
                self._intents.end(pull)
            else:
                self._intents.abandon(pull)
        self.tidy()

    def _keep_open(self, image_ref: str, names: Iterable[str]) -> None:
        """Write the first record of an image: it stays open under the names that no pull brought. Raise OSError."""
        if self._records.lacks(image_ref):
            for name in names:
                if not self._intents.brought(name, image_ref):
                    self._records.write(name, image_ref, Pullers(node_pods_accessible=True))

    def _try_write(self, image: str, image_ref: str, who: Pullers | None) -> bool:
        """Write a record; return whether that succeeded. Without it, pods have to pull the image again."""
        with self._changing:
            try:
                self._records.write(image, image_ref, who)
            except OSError as error:
                log.warning("writing the pull record of %s: %s", image, error)
                return False
            return True

    def prune(self, present: Listed, listed_at: float = float("inf")) -> None:
        """Forget the images that are no longer there; takes the IDs and names of those that are, as listed after `listed_at`.

        `listed_at` is a moment of `time.monotonic`: what was pulled since then may be missing from the list (upstream's
        PruneUnknownRecords).
        """
        present = list(present)
        with self._changing:
            self._decide(present, listed_at)
            self._records.prune(frozenset(image_ref for image_ref, _ in present), listed_at)
        self.tidy()

    # -- permission to use an image ----------------------------------------------------------------------------------
    def open_to_all(self, image: str, image_ref: str) -> bool:
        """Return whether any pod may use a present image, whatever its credentials."""
        by_us = not self._is_preloaded(image, image_ref)
        if not self._policy.requires(image, by_us=by_us):
            return True
        who = self._records.pullers_of(image, image_ref)
        return who is not None and who.node_pods_accessible

    def _is_preloaded(self, image: str, image_ref: str) -> bool:
        if not self._records.lacks(image_ref):
            return False
        return image_ref in self._preloaded.ids or not self._intents.concern(image, image_ref)

    def allows(self, image: str, image_ref: str, credentials: Sequence[Credential]) -> bool:
        """Return whether a pod with these credentials has pulled the image before; a changed secret is recorded."""
        who = self._records.pullers_of(image, image_ref)
        if who is None:
            return False
        found = matching(who, credentials)
        if found is not None and found.source.kind == SECRET:
            mine = secret(found)
            if mine not in who.kubernetes_secrets and len(who.kubernetes_secrets) < MOST:
                self._try_write(image, image_ref, Pullers(kubernetes_secrets=[mine]))
        return found is not None

    def trusts_loaded(self, image: str) -> bool:
        """Return whether an image is open to all for having been loaded by this name (loaded_images.py)."""
        return not self._policy.requires(image, by_us=False)
