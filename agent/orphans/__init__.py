"""Finds and removes the shims, network namespaces, addresses, containers and leases that containerd leaks.

It leaks them if it is killed, or its disk fails, while it starts or stops a sandbox or container: CRI no longer shows
these then.

Used only with a containerd that belongs to the agent's installation (`OwnContainerd`): another one may have other users.
"""
