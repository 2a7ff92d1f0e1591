"""Plugins that run beside the agent and register by a socket: CSI drivers, device plugins, DRA drivers."""
