"""The sending half of a TLS 1.3 connection after its handshake, for records that no library sends (RFC 8446 §5, §7.2)."""

from __future__ import annotations

import hashlib
import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DATA, HANDSHAKE = b"\x17", b"\x16"
KEY_UPDATE = b"\x18\0\0\x01\0"


class Sender:
    """Encrypts with the secret of one side; its suite must be one of AES-GCM."""

    def __init__(self, key_log: Path, label: str, cipher: str) -> None:
        """`label`: CLIENT_TRAFFIC_SECRET_0, or that of the server; `cipher` is the suite's name."""
        line = next(line for line in reversed(key_log.read_text().splitlines()) if line.startswith(label))
        self._hash, self._size = (hashlib.sha384, 32) if cipher.endswith("384") else (hashlib.sha256, 16)
        self._take(bytes.fromhex(line.split()[2]))

    def _take(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0
        self._key, self._iv = AESGCM(self._expand(b"key", self._size)), self._expand(b"iv", 12)

    def _expand(self, label: bytes, size: int) -> bytes:
        info = struct.pack("!HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
        return hmac.new(self._secret, info + b"\x01", self._hash).digest()[:size]

    def record(self, kind: bytes, content: bytes, padding: int = 0) -> bytes:
        """Return one record."""
        inner = content + kind + bytes(padding)
        head = struct.pack("!BHH", 23, 0x0303, len(inner) + 16)
        nonce = (int.from_bytes(self._iv, "big") ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + self._key.encrypt(nonce, inner, head)

    def key_update(self, padding: int = 0) -> bytes:
        """Return a record that changes the key, without asking the other side for the same."""
        record = self.record(HANDSHAKE, KEY_UPDATE, padding)
        size = self._hash().digest_size
        self._take(self._expand(b"traffic upd", size))
        return record
