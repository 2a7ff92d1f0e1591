"""The CredentialProviderConfig file (kubelet.config.k8s.io): credential plugins and their images.

It is decoded strictly and checked at the start, as upstream: a misconfigured plugin would otherwise be noticed much later, by
an image that cannot be pulled. --image-credential-provider-config may name a directory, whose files are read in the order of
their names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from agent.files.decoding import DamagedFileError, decode_yaml, text_of
from agent.kubelet_configuration import ConfigError
from kube import duration

_GROUP, _VERSIONS = "kubelet.config.k8s.io", ("v1", "v1beta1", "v1alpha1")
_PLUGIN_APIS = tuple(f"credentialprovider.kubelet.k8s.io/{version}" for version in _VERSIONS)
_SUFFIXES = (".json", ".yaml", ".yml")


class _Base(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    pass


class EnvVar(_Base):
    name: str
    value: str = ""


class TokenAttributes(_Base):
    """Settings of the token of the pod's service account that the plugin receives."""

    service_account_token_audience: str
    require_service_account: bool
    cache_type: Literal["ServiceAccount", "Token"]
    required_service_account_annotation_keys: tuple[str, ...] = ()
    optional_service_account_annotation_keys: tuple[str, ...] = ()


class Provider(_Base):
    """One plugin."""

    name: str
    match_images: tuple[str, ...]
    default_cache_duration: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    token_attributes: TokenAttributes | None = None

    @property
    def default_cache_seconds(self) -> float:
        return duration.parse(self.default_cache_duration)


class _File(_Base):
    kind: str
    api_version: str
    providers: tuple[Provider, ...]


def load(path: Path) -> tuple[Provider, ...]:
    """Read a file, or all files of a folder. Raise ConfigError naming the file and the field."""
    try:
        files = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES) if path.is_dir() else [path]
        found = [provider for file in files for provider in _load(file)]
    except OSError as error:
        raise ConfigError(f"credential provider config {path}: {error.strerror}") from error
    if not found:
        raise ConfigError(f"credential provider config {path}: at least 1 item in plugins is required")
    names = [provider.name for provider in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"credential provider config {path}: provider name {name!r} is duplicated")
    return tuple(found)


def _load(file: Path) -> tuple[Provider, ...]:
    try:
        return parse(text_of(file), str(file))
    except DamagedFileError as error:
        raise ConfigError(f"{file}: {error}") from error


def parse(text: str, source: str) -> tuple[Provider, ...]:
    """Decode YAML or JSON; `source` names it in errors. Raise ConfigError."""
    try:
        file = msgspec.convert(decode_yaml(text), _File)
    except (DamagedFileError, msgspec.ValidationError) as error:
        raise ConfigError(f"{source}: {error}") from error
    if file.kind != "CredentialProviderConfig" or file.api_version not in [f"{_GROUP}/{v}" for v in _VERSIONS]:
        raise ConfigError(f"{source}: expected {_GROUP}/v1 CredentialProviderConfig")
    for provider in file.providers:
        _check(provider, source)
    return file.providers


def _check(provider: Provider, source: str) -> None:
    name = provider.name
    where = f"{source}: provider {name!r}"
    if not name or "/" in name or " " in name or name in (".", ".."):
        raise ConfigError(f"{where}: name must be a file name without slash or space")
    if provider.api_version not in _PLUGIN_APIS:
        raise ConfigError(
            f"{where}: unsupported apiVersion {provider.api_version!r}, supported: {', '.join(_PLUGIN_APIS)}"
        )
    if not provider.match_images:
        raise ConfigError(f"{where}: at least 1 item in matchImages is required")
    try:
        if provider.default_cache_seconds < 0:
            raise ConfigError(f"{where}: defaultCacheDuration must be greater than or equal to 0")
    except ValueError as error:
        raise ConfigError(f"{where}: defaultCacheDuration: {error}") from error
    if (token := provider.token_attributes) is not None:
        if provider.api_version != _PLUGIN_APIS[0]:
            raise ConfigError(f"{where}: tokenAttributes is only supported for {_PLUGIN_APIS[0]}")
        if not token.service_account_token_audience:
            raise ConfigError(f"{where}: serviceAccountTokenAudience is required")
        both = set(token.required_service_account_annotation_keys) & set(token.optional_service_account_annotation_keys)
        if both:
            raise ConfigError(
                f"{where}: annotation keys cannot be both required and optional: {', '.join(sorted(both))}"
            )
        if not token.require_service_account and token.required_service_account_annotation_keys:
            raise ConfigError(f"{where}: required annotation keys need requireServiceAccount")
