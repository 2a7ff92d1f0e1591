"""Controllers and scheduler as components: in the API server's process, or as daemons of their own, each with its port.

`embedded.py` runs both in the API server's process and `standalone.py` one of them in a process of its own. `secure_port.py`
is the port of a component, `embedded_ports.py` opens those of the API server's process, and `access.py` authenticates and
authorizes their clients.
"""
