"""Options of scheduled snapshots and of the S3 service that snapshots are copied to, with their checks.

Errors name the option of `wherry up`, so that those of the configuration file get its line.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from urllib.parse import SplitResult
from zoneinfo import ZoneInfo

from kube import cron, urls
from kube.cron import Schedule
from wherry import writable_by_others
from wherry.errors import WherryError

OFF, USUAL = "off", "0 */12 * * *"
CREDENTIALS = "s3-credentials"
LEAST_SECONDS = 60
"""Seconds between two scheduled snapshots at least."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_PART = re.compile(r"[A-Za-z0-9!_.*'()-]+")
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """The options of a machine; `bucket` is empty if snapshots are not copied. Seconds."""

    schedule: str
    retention: int
    folder: Path
    bucket: str
    endpoint: str
    region: str
    bucket_folder: str
    credentials: Path
    ca: str
    insecure: bool
    timeout: int

    @property
    def scheduled(self) -> Schedule | None:
        """The schedule; None if there is none. Raises ValueError."""
        return None if self.schedule == OFF else _parsed(self.schedule)

    @property
    def url(self) -> str:
        """The URL of the S3 service, without a slash at its end."""
        return (self.endpoint or f"https://s3.{self.region}.amazonaws.com").rstrip("/")

    @property
    def prefix(self) -> str:
        """The beginning of the names of snapshots in the bucket."""
        folder = self.bucket_folder.strip("/")
        return f"{folder}/" if folder else ""


def _parsed(text: str) -> Schedule:
    if len(text) > 256:
        raise ValueError("it has more than 256 characters")
    found = cron.parse(text)
    if found.every and found.every < LEAST_SECONDS:
        raise ValueError(f"it is at least {LEAST_SECONDS} seconds")
    if found.after(datetime(2026, 1, 1, tzinfo=UTC)) is None:
        raise ValueError("there is no such day")
    return found


def machine_zone(path: Path = Path("/etc/localtime")) -> tzinfo:
    """Return the machine's time zone, UTC if it has none; a schedule means the times of its clock."""
    try:
        with path.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC


def check(options: SnapshotOptions, group: int, user: int, *, named: bool) -> None:
    """Raise WherryError for options that cannot work; `group` and `user` are the control plane's account, -1 without one.

    The folder is checked if it was `named`; the one of the installation is created.
    """
    try:
        _ = options.scheduled
    except ValueError as error:
        raise WherryError(
            f"--snapshot-schedule {options.schedule}: {error}; write five fields, @daily or off"
        ) from error
    if options.retention < 1:
        raise WherryError(f"--snapshot-retention {options.retention}: it is at least 1")
    if options.timeout < 1:
        raise WherryError(f"--snapshot-s3-timeout {options.timeout}: it is at least 1 second")
    if named and (problem := folder_problem(options.folder, user)):
        raise WherryError(f"--snapshot-folder {options.folder}: {problem}")
    if options.bucket:
        _check_s3(options, group)
    elif options.endpoint or options.bucket_folder or options.ca:
        raise WherryError("--snapshot-s3-bucket is missing: the other options of S3 have no effect without it")


def folder_problem(path: Path, user: int) -> str:
    """Return the problem of a folder that snapshots, which contain Secrets, are written to.

    Only root and the account of the control plane may write it or replace it: a restore trusts its files.
    """
    if not path.is_absolute():
        return "name it by its whole path"
    try:
        found = path.stat()
    except OSError:
        return "there is no such folder: create it with mode 0700, or mount its disk"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    return writable_by_others.problem_of(path, writable_by_others.trusted(user))


def _check_s3(options: SnapshotOptions, group: int) -> None:
    if not _BUCKET.fullmatch(options.bucket):
        raise WherryError(f"--snapshot-s3-bucket {options.bucket}: this is no name of a bucket")
    if not _REGION.fullmatch(options.region):
        raise WherryError(f"--snapshot-s3-region {options.region}: this is no region, such as us-east-1")
    parts = options.prefix.split("/")[:-1]
    if not all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
        raise WherryError(f"--snapshot-s3-folder {options.bucket_folder}: use letters, digits, /, -, _ and .")
    if problem := _url_problem(options):
        raise WherryError(f"--snapshot-s3-endpoint {options.url}: {problem}")
    if options.ca and not Path(options.ca).is_file():
        raise WherryError(f"--snapshot-s3-ca {options.ca}: there is no such file")
    if options.ca and (problem := writable_by_others.problem_of(Path(options.ca), writable_by_others.trusted())):
        raise WherryError(f"--snapshot-s3-ca {options.ca}: {problem}")
    if problem := secret_problem(options.credentials, group):
        raise WherryError(f"--snapshot-s3-credentials {options.credentials}: {problem}")


def _url_problem(options: SnapshotOptions) -> str:
    try:
        found: SplitResult = urls.split(options.url)
        host, _ = found.hostname, found.port
    except ValueError as error:
        return str(error)
    if found.username is not None or found.password is not None:
        return "the access key belongs into the file of --snapshot-s3-credentials"
    if found.scheme not in ("http", "https") or not host or found.path or found.query or found.fragment:
        return "write https://HOST or https://HOST:PORT"
    if found.scheme == "http" and not options.insecure:
        return "without TLS everybody on the way can read the snapshots; --snapshot-s3-insecure allows it"
    return ""


def secret_problem(path: Path, group: int) -> str:
    """Return the problem of a file with a secret: only root may write it, and only root and a group may read it."""
    try:
        found = path.stat()
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a file"
    allowed = 0o640 if found.st_gid in (0, group) else 0o600
    if found.st_mode & 0o777 & ~allowed:
        return f"other accounts may read it: `chmod 600 {path}`"
    return writable_by_others.problem_of(path, writable_by_others.trusted())
