"""`wherry check --security`: the CIS Kubernetes Benchmark 1.12 on the running machine.

`rows.py` is what a check is; a module a section of the benchmark has its checks as rows, and `table.py` puts them together.
`gather.py` asks the daemons, the API and the ports once, into `facts.py`; checks are functions of these facts and of the
files' modes. The table in docs/security.md is written from the same rows.
"""
