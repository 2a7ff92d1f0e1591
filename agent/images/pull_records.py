"""Pull records of images, in memory and on disk: the credentials that have pulled each image, by its names."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.files.decoding import DamagedFileError, decode_json
from agent.images.names import with_registry, without_tag
from agent.images.pull_record_files import (
    API_VERSION,
    MOST_NAMES,
    PulledRecord,
    Pullers,
    corrected,
    file_name,
    merge,
    record_files,
)
from kube.files import write_file

log = logging.getLogger(__name__)


class PullRecords:
    """The records in `folder`; `now` returns an RFC 3339 time.

    `lacks` and `pullers_of` only look at memory; the others block.
    """

    def __init__(self, folder: Path, now: Callable[[], str], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._now, self._monotonic = folder, now, monotonic
        self._records: dict[str, PulledRecord] = {}
        self._noted: dict[str, float] = {}
        """By image: when its record was written last, by `time.monotonic`."""
        self._damaged: set[str] = set()
        """Names of damaged record files: their images are allowed to no pod until they are pulled again."""
        self.removals = 0
        """Number of lists of images for which records have been removed."""

    def load(self) -> None:
        """Read the last agent's records."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in record_files(self._folder):
            try:
                record = corrected(decode_json(path, PulledRecord))
                self._records[record.image_ref] = record
            except (OSError, DamagedFileError) as error:
                log.error("%s: %s; pods have to pull the image again", path, error)
                self._damaged.add(path.name)

    def lacks(self, image_ref: str) -> bool:
        """Return whether an image has no record, not even a damaged one."""
        return image_ref not in self._records and file_name(image_ref) not in self._damaged

    def pullers_of(self, image: str, image_ref: str) -> Pullers | None:
        """Return what has pulled an image under a name, in any spelling; records of earlier versions have the pod's."""
        record, name = self._records.get(image_ref), without_tag(image)
        mapping = record.credential_mapping if record is not None else {}
        return mapping.get(with_registry(name)) or mapping.get(name)

    def write(self, image: str, image_ref: str, who: Pullers | None) -> None:
        """Add to the record of an image what has pulled it; None for a record that opens it to none. Raise OSError."""
        self._noted[image_ref] = self._monotonic()
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
        write_file(self._folder / file_name(image_ref), msgspec.json.encode(record), 0o600)
        self._records[image_ref] = record
        self._damaged.discard(file_name(image_ref))

    def prune(self, kept: frozenset[str], listed_at: float) -> None:
        """Remove the records of images that are not `kept`, as listed after a moment of the clock."""
        gone = [ref for ref in self._records if ref not in kept and self._noted.get(ref, float("-inf")) < listed_at]
        damaged = self._damaged - {file_name(image_ref) for image_ref in kept}
        if gone or damaged:
            self.removals += 1  # before a record is missing
        for image_ref in gone:
            del self._records[image_ref]
            self._noted.pop(image_ref, None)
            with contextlib.suppress(FileNotFoundError):
                (self._folder / file_name(image_ref)).unlink()
        for name in damaged:
            self._damaged.discard(name)
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
