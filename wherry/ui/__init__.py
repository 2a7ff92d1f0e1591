"""The page of `wherry ui`: a server on loopback that serves it, and reads the cluster for it with the user's own rights.

`server.py` listens, `guard.py` refuses requests of other sites, `session.py` exchanges the one-time link, and `app.py` has the
routes: reads (`reading.py`, of the paths in `paths.py`), watches (`watching.py`) and stories (`stories.py`). The browser loads
the files in `page/`.
"""
