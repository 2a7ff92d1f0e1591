"""Policies for the verification of pull credentials (imagePullCredentialsVerificationPolicy)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from agent.images.names import without_tag

Policy = Literal["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"]
POLICIES: tuple[str, ...] = get_args(Policy)


@dataclass(frozen=True, slots=True)
class Verification:
    """A policy and its list of preloaded images."""

    policy: str
    allowlist: Sequence[str]

    def requires(self, image: str, *, by_us: bool) -> bool:
        """Return whether pods need credentials for an image; `by_us`: the agent has pulled it."""
        if self.policy == "NeverVerify":
            return False
        if self.policy == "NeverVerifyPreloadedImages":
            return by_us
        if self.policy == "NeverVerifyAllowlistedImages":
            return by_us or not any(_listed(without_tag(image), pattern) for pattern in self.allowlist)
        return True


def _listed(image: str, pattern: str) -> bool:
    """Match an entry of preloadedImagesVerificationAllowlist: a whole name, or all names below a path that ends in /*."""
    return image.startswith(pattern[:-1]) if pattern.endswith("/*") else image == pattern
