"""Plugins that run beside the agent and make themselves known by a socket: CSI drivers, device plugins, DRA drivers."""
