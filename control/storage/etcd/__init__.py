"""The shared engine: etcd v3 behind the `Store` contract (store.py). Import it only where etcd is chosen: grpc is large."""
