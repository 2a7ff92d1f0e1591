"""Tasks of the API server on objects that it creates and maintains itself; upstream runs some of them as post-start hooks.

`bootstrap.py` creates the objects that every cluster has. `server_addresses.py` maintains the endpoints of `kubernetes`,
`server_identity.py` this server's lease, `service_repair.py` the allocated addresses and ports of Services, and
`policy_checking.py` the status of admission policies.
"""
