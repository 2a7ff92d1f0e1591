"""Snapshots in a bucket of an S3 service: stored, fetched, listed and deleted.

A library for S3 (boto3 with botocore: 25 MiB and ten packages; minio: five packages) would add more to an installation than
these requests need. Buckets are named in the path of URLs, which AWS and the other services accept. The SHA-256 of a
snapshot is stored with it, and checked when it is fetched.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from wherry import s3_documents
from wherry.s3_documents import NotS3, StoredObject
from wherry.s3_requests import PIECE, Requests, S3Error, document
from wherry.snapshot_options import SnapshotOptions

LARGEST = 5 << 30
"""Bytes of an object that one request may create."""
MOST_PAGES, MOST_OBJECTS = 100, 10_000
"""Pages and objects of the folder in a bucket that are listed."""
METADATA = "x-amz-meta-"
Count = Callable[[int], None]


class S3:
    """The folder of snapshots in a bucket."""

    def __init__(self, requests: Requests) -> None:
        self._requests, self._options = requests, requests.options

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, options: SnapshotOptions) -> AsyncIterator[S3]:
        async with Requests.open(options) as requests:
            yield cls(requests)

    def url(self, name: str) -> str:
        """Return the name of a snapshot's object as people write it."""
        return f"s3://{self._options.bucket}/{self._options.prefix}{name}"

    async def put(self, name: str, file: IO[bytes], metadata: Mapping[str, str], count: Count = lambda _: None) -> None:
        """Create an object with the content of an open file; raises S3Error, OSError."""
        total, digest = os.fstat(file.fileno()).st_size, await asyncio.to_thread(_sha256, file)
        if total > LARGEST:
            raise S3Error(f"{name} has more than 5 GiB, the most that one request may send to S3")
        headers = {f"{METADATA}{key}": value for key, value in {**metadata, "sha256": digest}.items()}
        headers |= {"Content-Length": str(total), "Content-Type": "application/vnd.sqlite3"}
        counted = _Counted(count)

        async def attempt() -> None:
            counted.restart()
            async with self._requests.send("PUT", name, headers=headers, digest=digest, body=_pieces(file, counted)):
                pass

        await self._requests.repeated(attempt)

    async def get(self, name: str, path: Path, size: int, count: Count = lambda _: None) -> None:
        """Write an object of `size` bytes to a new file of mode 0600; raises S3Error, OSError. Another file is removed."""
        counted = _Counted(count)

        async def attempt() -> None:
            counted.restart()
            with _created(path) as descriptor:
                digest, left = hashlib.sha256(), size
                async with self._requests.send("GET", name) as response:
                    async for piece in response.content.iter_chunked(PIECE):
                        if (left := left - len(piece)) < 0:
                            raise S3Error(f"{self.url(name)} has more bytes than the {size} that the list says")
                        await asyncio.to_thread(_write, descriptor, piece)
                        digest.update(piece)
                        counted(len(piece))
                    expected = response.headers.get(f"{METADATA}sha256", "")
                if expected not in ("", digest.hexdigest()):
                    raise S3Error(f"{self.url(name)} is damaged: its SHA-256 is not the one that was stored with it")

        await self._requests.repeated(attempt)

    async def metadata(self, name: str) -> dict[str, str]:
        """Return what was stored with an object; raises S3Error."""

        async def attempt() -> dict[str, str]:
            async with self._requests.send("HEAD", name) as response:
                headers = {key.lower(): value for key, value in response.headers.items()}
                return {key.removeprefix(METADATA): headers[key] for key in headers if key.startswith(METADATA)}

        return await self._requests.repeated(attempt)

    async def listed(self) -> list[StoredObject]:
        """Return the objects of the folder with their names in it; raises S3Error."""
        prefix, token = self._options.prefix, ""
        found: list[StoredObject] = []

        async def attempt() -> tuple[list[StoredObject], str]:
            query = {"list-type": "2", "prefix": prefix, "delimiter": "/"}
            query |= {"continuation-token": token} if token else {}
            async with self._requests.send("GET", "", query=query) as response:
                text = await document(response)
            try:
                return s3_documents.page(text)
            except NotS3 as error:
                raise S3Error(f"{self._options.url} is no S3 service: {error}") from error

        for _ in range(MOST_PAGES):
            objects, token = await self._requests.repeated(attempt)
            found += objects
            if len(found) > MOST_OBJECTS:
                raise S3Error(
                    f"{self.url('')} has more than {MOST_OBJECTS} objects: use a folder that contains only snapshots"
                )
            if not token:
                break
        names = [(each.name.removeprefix(prefix), each) for each in found if each.name.startswith(prefix)]
        return [StoredObject(name, each.size, each.changed) for name, each in names if name and "/" not in name]

    async def delete(self, name: str) -> None:
        """Delete an object; one that is not there is no error. Raises S3Error."""

        async def attempt() -> None:
            async with self._requests.send("DELETE", name):
                pass

        await self._requests.repeated(attempt)


class _Counted:
    """Counts bytes of an attempt, which are not counted any more when there is another one."""

    def __init__(self, count: Count) -> None:
        self._count, self._counted = count, 0

    def __call__(self, amount: int) -> None:
        self._counted += amount
        self._count(amount)

    def restart(self) -> None:
        self(-self._counted)


async def _pieces(file: IO[bytes], count: Count) -> AsyncIterator[bytes]:
    file.seek(0)
    while piece := await asyncio.to_thread(file.read, PIECE):
        yield piece
        count(len(piece))


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    """Create a file, which is removed if the block fails."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sha256(file: IO[bytes]) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
