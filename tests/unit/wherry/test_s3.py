"""S3's signatures, by the examples of its API reference, and the documents that the client reads."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.support import cost
from wherry import s3_documents
from wherry.s3_documents import NotS3, StoredObject
from wherry.s3_signature import EMPTY, Key, escaped, sign

KEY = Key("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
"""The key of the examples."""
DAY = datetime(2013, 5, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "body", "signature"),
    [
        (
            "GET",
            "/test.txt",
            {},
            {"Range": "bytes=0-9"},
            b"",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            f"/{escaped('test$file.text')}",
            {},
            {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            b"Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        ("GET", "/", {"lifecycle": ""}, {}, b"", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            "GET",
            "/",
            {"max-keys": "2", "prefix": "J"},
            {},
            b"",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_signatures_are_those_of_the_reference(
    method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes, signature: str
) -> None:
    digest = hashlib.sha256(body).hexdigest()
    sent = sign(KEY, "us-east-1", DAY, method, "examplebucket.s3.amazonaws.com", path, query, headers, digest)
    assert sent["Authorization"].endswith(f"Signature={signature}")
    assert headers.items() <= sent.items() and sent["x-amz-date"] == "20130524T000000Z"


def test_a_temporary_key_sends_its_token_and_no_key_is_shown() -> None:
    key = Key("id", "secret", "token")
    sent = sign(key, "r", DAY, "GET", "h", "/", {}, {})
    assert sent["x-amz-security-token"] == "token" and "x-amz-security-token" in sent["Authorization"]
    assert sent["x-amz-content-sha256"] == EMPTY
    assert "secret" not in repr(key) and "token" not in repr(key) and "secret" not in str(sent)


def test_pages_of_a_list_are_read() -> None:
    text = b"""<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>true
</IsTruncated><Contents><Key>a&amp;b</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><Size>7</Size></Contents>
<NextContinuationToken>t</NextContinuationToken></ListBucketResult>"""
    objects, token = s3_documents.page(text.replace(b"true\n", b"true"))
    assert objects == [StoredObject("a&b", 7, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp())]
    assert token == "t"
    assert s3_documents.page(text.replace(b"true\n", b"false"))[1] == ""


def _object(key: str = "a", size: str = "1") -> str:
    return f"<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>2026-01-02T03:04:05Z</LastModified></Contents>"


def _page(content: str) -> bytes:
    return f"<ListBucketResult>{content}</ListBucketResult>".encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"<html>", "is no XML"),
        (b"<a/>", "is no list"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult>&b;</ListBucketResult>', "has a document type"),
        (
            b"<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
            "incomplete: it has no LastModified",
        ),
        (_page(_object(size="1" * 5000)), "more than 4095 characters"),
        (_page(_object(size="9" * 4000)), "an object of the list is invalid: its size is 9999"),
        (_page(_object(size="x")), "an object of the list is invalid: "),
        (_page("<a>" * 40 + "</a>" * 40), "more than 32 levels"),
        (_page("<a/>" * 100_001), "more than 100000 elements"),
        (_page("<a " + " ".join(f'a{n}=""' for n in range(60_000)) + "/>"), "a tag has more than 256 KiB"),
    ],
)
def test_other_documents_are_refused(text: bytes, message: str) -> None:
    with pytest.raises(NotS3, match=message):
        s3_documents.page(text)


def test_errors_have_a_code_and_a_message() -> None:
    text = b"<Error><Code>NoSuchBucket</Code><Message>no bucket</Message></Error>"
    assert s3_documents.error(text) == ("NoSuchBucket", "no bucket")
    assert s3_documents.error(b"<html>") == ("", "")


def test_long_messages_are_cut() -> None:
    code, message = s3_documents.error(b"<Error><Code>a</Code><Message>" + b"m\n" * 10_000 + b"</Message></Error>")
    assert code == "a" and message == "m\n" * (s3_documents.LONGEST // 2)


def test_a_page_of_many_objects_is_read() -> None:
    objects, _ = s3_documents.page(_page("".join(_object(f"{number}" + "&lt;" * 900) for number in range(1000))))
    assert len(objects) == 1000 and objects[999].name == "999" + "<" * 900


@pytest.mark.parametrize("size", [4096, 65536, 1 << 20])
@pytest.mark.parametrize(
    "build",
    [
        lambda size: b"<a>" * (size // 7) + b"</a>" * (size // 7),
        lambda size: _page("<Contents><Key/></Contents>" * (size // 27)),
        lambda size: _page("<Contents>" + "<Key>a</Key>" * (size // 12) + "</Contents>"),
        lambda size: _page("<Contents><Key>" + "a&amp;" * (size // 6) + "</Key></Contents>"),
        lambda size: b"<Error><Message>" + b"m\n" * (size // 2) + b"</Message></Error>",
    ],
)
def test_the_memory_of_a_document_is_in_proportion_to_its_length(build: Callable[[int], bytes], size: int) -> None:
    """Memory for the path of each element grew with the square of the depth: 1.5 GiB for 280 kB."""

    def read(document: bytes) -> None:
        s3_documents.error(document)
        with contextlib.suppress(NotS3):
            s3_documents.page(document)

    case = cost.Case("an S3 document", build, read)
    assert cost.peak(case, build(size)) < 40 * size + cost.LITTLE // 4
