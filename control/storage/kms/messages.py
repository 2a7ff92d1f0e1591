"""The messages of key management plugins; the only module that imports the generated ones."""

from control.storage.kms.wire.api_pb2 import (
    HKDF_SHA256_XNONCE_AES_GCM_SEED,
    DecryptRequest,
    DecryptResponse,
    EncryptedObject,
    EncryptRequest,
    EncryptResponse,
    StatusRequest,
    StatusResponse,
)

__all__ = [
    "HKDF_SHA256_XNONCE_AES_GCM_SEED",
    "DecryptRequest",
    "DecryptResponse",
    "EncryptRequest",
    "EncryptResponse",
    "EncryptedObject",
    "StatusRequest",
    "StatusResponse",
]
