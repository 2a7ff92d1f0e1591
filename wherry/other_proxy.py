"""Configuration for another service proxy than Wherry's: the settings it gets, and the rules that are removed."""

from __future__ import annotations

from wherry.settings import Settings
from wherry.terminal import console


async def remove_own_rules() -> None:
    """Remove the rules of Services that Wherry's proxy left in force."""
    from netproxy.cleanup import remove_services

    await remove_services()


def describe(settings: Settings) -> None:
    """Say what serves Services where Wherry does not."""
    if settings.proxy == "none":
        console.print("\nServices are served by no proxy of Wherry's, but by what you install.")
    if settings.proxy == "upstream":
        console.print("\nServices are served once your kube-proxy runs on this machine, as in:\n")
        console.print(f"  kube-proxy --config={settings.layout.proxy_configuration}", soft_wrap=True)
        console.print(f"\nIts kubeconfig is {settings.layout.netproxy_kubeconfig}.", soft_wrap=True)
