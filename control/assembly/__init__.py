"""Assembly of the API server from its configuration in stages, and reloading of configuration files.

`api_server.py` creates the parts in the order of their dependencies, with `groups.py`, and runs their tasks
(`background.py`). `access.py`, `encryption_at_rest.py`, `audit_sinks.py` and `tracing.py` build what files configure;
`reloading.py` reads a file again when it changes.
"""
