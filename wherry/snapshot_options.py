"""Options of scheduled snapshots and of the S3 service that snapshots are copied to, with their checks.

Errors name the option of `wherry up`, so that those of the configuration file get its line.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from urllib.parse import SplitResult
from zoneinfo import ZoneInfo

from kube import cron, urls
from kube.cron import Schedule
from wherry import value_forms, writable_by_others
from wherry.errors import Problem, wrong

OFF, USUAL = "off", "0 */12 * * *"
CREDENTIALS, CREDENTIALS_OPTION = "s3-credentials", "snapshot-s3-credentials"
LEAST_SECONDS = 60
"""Seconds between two scheduled snapshots at least."""
MOST = 999_999_999
"""Largest number of snapshots and of seconds."""
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


def problems(
    options: SnapshotOptions, group: int, user: int, *, named: bool, own_credentials: bool
) -> Iterator[Problem]:
    """Yield what cannot work; `group` and `user` are the control plane's account, -1 without one.

    The folder is checked if it was `named`; the one of the installation is created. With `own_credentials` an option names
    the file of the access key.
    """
    try:
        _ = options.scheduled
    except ValueError as error:
        yield wrong("snapshot-schedule", options.schedule, f"{error}; write five fields, @daily or off")
    if why := value_forms.within(options.retention, 1, MOST):
        yield wrong("snapshot-retention", options.retention, why)
    if why := value_forms.within(options.timeout, 1, MOST):
        yield wrong("snapshot-s3-timeout", options.timeout, f"{why} seconds")
    if named and (why := folder_problem(options.folder, user)):
        yield wrong("snapshot-folder", options.folder, why)
    yield from _of_s3(options, group)
    if options.bucket:
        yield from _of_credentials(options, group, named=own_credentials)


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


def _of_s3(options: SnapshotOptions, group: int) -> Iterator[Problem]:
    """Yield the problems of the options of S3, each of which is checked without a bucket too."""
    if options.bucket and not _BUCKET.fullmatch(options.bucket):
        yield wrong("snapshot-s3-bucket", options.bucket, "this is no name of a bucket")
    if not _REGION.fullmatch(options.region):
        yield wrong("snapshot-s3-region", options.region, "this is no region, such as us-east-1")
    parts = options.prefix.split("/")[:-1]
    if not all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
        yield wrong("snapshot-s3-folder", options.bucket_folder, "use letters, digits, /, -, _ and .")
    if options.endpoint and (why := _url_problem(options)):
        yield wrong("snapshot-s3-endpoint", options.url, why, "snapshot-s3-insecure")
    if why := _ca_problem(options.ca):
        yield wrong("snapshot-s3-ca", options.ca, why)
    given = {"endpoint": options.endpoint, "folder": options.bucket_folder, "ca": options.ca}
    if not options.bucket and (without := [f"snapshot-s3-{name}" for name, value in given.items() if value]):
        why = "--snapshot-s3-bucket is missing: the other options of S3 have no effect without it"
        yield Problem(without[0], why, (*without[1:], "snapshot-s3-bucket"))


def _of_credentials(options: SnapshotOptions, group: int, *, named: bool) -> Iterator[Problem]:
    """Yield the problem of the file with the access key, as one of the option that needs it if none names the file."""
    path, keys = options.credentials, "aws_access_key_id and aws_secret_access_key"
    missing = _is_missing(path)
    if missing and not named:
        fix = f"write {keys} into it with mode 0600, or name another file with --snapshot-s3-credentials"
        yield wrong("snapshot-s3-bucket", options.bucket, f"there is no file {path} with the access key: {fix}")
    elif missing:
        yield wrong(CREDENTIALS_OPTION, path, f"there is no such file: write {keys} into it with mode 0600")
    elif why := secret_problem(path, group):
        yield wrong(CREDENTIALS_OPTION, path, why, "snapshot-s3-bucket")


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:  # secret_problem has the reason
        return False
    return False


def _ca_problem(path: str) -> str:
    if not path:
        return ""
    return value_forms.file(path) or writable_by_others.problem_of(Path(path), writable_by_others.trusted())


def _url_problem(options: SnapshotOptions) -> str:
    try:
        found: SplitResult = urls.split(options.url)
    except ValueError:
        return "write https://HOST or https://HOST:PORT"
    if found.username is not None or found.password is not None:
        return "the access key belongs into the file of --snapshot-s3-credentials"
    if not value_forms.is_url(options.url):
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
