"""Rows of docs/troubleshooting.md that are faults of a machine, as scripts of shell: they need no cluster that runs.

Each script runs in a network namespace and a mount namespace of its own, on an installation below a folder. Another folder in
place of a machine's own (a bind mount) is as if a package or a module were missing, and its removal as if it were installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.stopped_installation import ALONE
from tests.support.symptoms import Row

_START = """
P=$INSTALLED
wherry() { "$PYTHON" -m wherry.main "$@" --prefix "$P"; }
hide() { mkdir -p $TMP/empty && mount --bind $TMP/empty "$1"; }
short_lived() { openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=a -keyout $TMP/key -out "$1" 2>/dev/null; }
cd $TMP
"""


@dataclass(frozen=True)
class MachineSymptom:
    """Commands that produce and mend the symptom of a row; `seen` shows the message before the fix, and does not afterwards."""

    produce: str
    seen: str
    finds: str
    """Regular expression of what the row's command shows."""
    fix: str
    mended: str = ""
    """Command that does not show the message after the fix, if it is not `seen`."""
    command: str = ""
    """Replacement of the row's command, which is abbreviated."""

    def run(self, row: Row, installed: Path, folder: Path) -> None:
        """Produce, find and mend the symptom; raises AssertionError."""
        typed = self.command or row.commands[0]
        command = re.sub(r" /(?=etc/|var/lib/)", " $P/", typed)
        parts = (self.produce, self.seen, command, self.fix, self.mended or self.seen)
        script = f"{_START}\n" + "\n".join(f"echo '=={number}'\n{part}" for number, part in enumerate(parts))
        done = subprocess.run(
            ["unshare", "--net", "--mount", "sh", "-c", f"{ALONE}\n{script}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "INSTALLED": str(installed), "TMP": str(folder), "PYTHON": sys.executable},
        ).stdout
        shown = re.split(r"^==\d\n", done, flags=re.M)
        assert len(shown) == 6, done
        message = re.compile(row.pattern(), re.S)
        before, after = (" ".join(shown[number].split()) for number in (2, 5))  # lines are broken at 80 columns
        assert message.search(before), f"$ {self.seen}\n{done}"
        assert re.search(self.finds, shown[3], re.S | re.M), f"$ {command}\n{done}"
        assert not message.search(after), f"after $ {self.fix}\n{done}"


NO_PLUGINS = "hide /usr/lib/cni"
PLUGINS = "umount /usr/lib/cni"
READ = """
import sys
from pathlib import Path
from control.controllers.addons import folder
path, owners = Path(sys.argv[1]), [0, 65534]
status = path.stat()
try:
    print(folder.read(folder.AddonFile("a", path, folder._stamp(status), ""), owners))
except folder.FileRefused as error:
    print(error)
"""
PKI = "$P/var/lib/wherry/pki"
SYMPTOMS: dict[str, MachineSymptom] = {
    "this machine lacks what is named above; nothing was started": MachineSymptom(
        NO_PLUGINS, "wherry up", "no CNI plugins", PLUGINS, "wherry check"
    ),
    "no CNI plugins": MachineSymptom(NO_PLUGINS, "wherry check", r"^/usr/lib/cni:\n(\n|\Z)|cannot access", PLUGINS),
    "br_netfilter is not loaded: pods on one node could not reach each other through a Service": MachineSymptom(
        "hide /proc/sys/net/bridge", "wherry check", "Module|", "umount /proc/sys/net/bridge"
    ),
    "only … MiB are free under …": MachineSymptom(
        "mount -t tmpfs -o size=64m none $P/var/lib/wherry",
        "wherry check",
        "64M",
        "mount -o remount,size=3g $P/var/lib/wherry",
    ),
    "this machine has no address that others could reach: name it with --node-ip": MachineSymptom(
        f"{NO_PLUGINS}; ip address flush dev v0; P=$TMP/new",
        "wherry up",
        r"\A(?!.*inet 192)",
        "ip address add 192.0.2.1/24 dev v0",
        "wherry up --node-ip 192.0.2.1",
    ),
    "no interface of this machine has this address": MachineSymptom(
        f"{NO_PLUGINS}; echo 'node-ip: 192.0.2.11' >$P/etc/wherry/config.yaml",
        "wherry config validate; wherry up",
        "inet 192.0.2.1/24",
        "echo 'node-ip: 192.0.2.1' >$P/etc/wherry/config.yaml",
        "wherry config validate && wherry up --node-ip 192.0.2.1",
    ),
    "write the hosts.toml of the one at …": MachineSymptom(
        "printf 'runtime-endpoint: unix:///run/x.sock\\nregistry-mirror:\\n  docker.io: https://a.example\\n' "
        ">$P/etc/wherry/config.yaml",
        "wherry config validate",
        "registry-mirror",
        "echo 'runtime-endpoint: unix:///run/x.sock' >$P/etc/wherry/config.yaml",
    ),
    "it has neither an index.json (OCI layout) nor a manifest.json (docker save)": MachineSymptom(
        "echo x >x && tar -cf other.tar x",
        "wherry bundle create a.bundle other.tar",
        "^x$",
        "rm -f a.bundle",
        "wherry bundle create a.bundle good.tar",
        command="tar -tf other.tar",
    ),
    "… of the bundle is damaged: its SHA-256 is not that of the manifest": MachineSymptom(
        "wherry bundle create a.bundle good.tar && cp a.bundle b.bundle && "
        "printf X | dd of=b.bundle bs=1 seek=$(($(stat -c %s b.bundle) / 2)) conv=notrunc status=none",
        "wherry bundle load b.bundle",
        r"^([0-9a-f]+)  a.bundle\n(?!\1)",
        "cp a.bundle b.bundle",
        command="sha256sum a.bundle b.bundle",
    ),
    "the certificate in … …": MachineSymptom(
        f"short_lived {PKI}/apiserver.crt", "wherry status", "apiserver.crt .* 8 days", "wherry certs renew"
    ),
    "the certificate in … is damaged (…)": MachineSymptom(
        f"echo x >{PKI}/apiserver.crt", "wherry status", "apiserver.crt", "wherry certs renew"
    ),
    "the CA in … is damaged": MachineSymptom(
        f"cp {PKI}/ca.crt . && echo x >{PKI}/ca.crt", "wherry status", r"\b2 .* ca.crt$", f"cp ca.crt {PKI}/ca.crt"
    ),
    "nothing renews a CA: move the workloads": MachineSymptom(
        f"cp -r {PKI} . && short_lived {PKI}/front-proxy-ca.crt",
        "wherry status",
        "front-proxy-ca.crt .* 8 days",
        f"rm -r {PKI} && cp -r pki {PKI}",  # as a new cluster has CAs of its own
    ),
    "no nodes available to schedule pods": MachineSymptom(
        'dev() { "$PYTHON" -m wherry.main dev --kubeconfig $TMP/kubeconfig "$@" >dev.log & running=$!; '
        "until grep -q export dev.log; do kill -0 $running || break; sleep 0.2; done; }; export KUBECONFIG=$TMP/kubeconfig; "
        "run() { kubectl run web --image=web; sleep 1; }; dev --nodes 0 && run",
        "kubectl describe pod web",
        "No resources found",
        "kill $running; wait; rm -f kubeconfig dev.log; dev --nodes 1 && run",
        "kubectl describe pod web; kill $running; wait",
    ),
    "… has … free, and a snapshot of … must leave …": MachineSymptom(
        "mkdir small && mount -t tmpfs -o size=16k none small",
        "wherry snapshot save small/a.db",
        "NAME",
        "mount -o remount,size=1g small",
    ),
    "still mounted: …; run umount on each, then wherry reset again": MachineSymptom(
        "mkdir -p $P/var/lib/kubelet/pods/m && mount -t tmpfs none $P/var/lib/kubelet/pods/m",
        'unshare --user --map-root-user --net --mount "$PYTHON" -m wherry.main reset --yes --prefix $P',
        "kubelet/pods/m",
        "umount $P/var/lib/kubelet/pods/m",
        "wherry reset --yes",
    ),
    "other accounts than root may write to …, whose programs run as root": MachineSymptom(
        "mkdir -p $P/opt/cni/bin && chmod 777 $P/opt/cni/bin && "
        """sed -i 's/"pod_network": *"[a-z]*"/"pod_network": "none"/' $P/etc/wherry/wherry.json""",
        "wherry check",
        "^drwxrwxrwx.*bin$",
        "chmod go-w $P/opt/cni/bin",
        command="ls -ld $P/opt $P/opt/cni $P/opt/cni/bin",
    ),
    "… comes before …: pods get its network instead of Wherry's": MachineSymptom(
        "mkdir -p $P/etc/cni/net.d && echo '{}' >$P/etc/cni/net.d/05-other.conflist",
        "wherry check",
        "^05-other.conflist$",
        "rm $P/etc/cni/net.d/05-other.conflist",
    ),
    "this cluster is stored in SQLite, which one API server alone can use": MachineSymptom(
        "true",
        "wherry token create --control-plane",
        "^store: sqlite",
        "etcd --data-dir etcd --logger zap >etcd.log 2>&1 & etcd=$!; "
        "until curl -sf http://127.0.0.1:2379/health; do kill -0 $etcd || break; sleep 0.1; done; "
        "wherry store migrate --etcd-servers http://127.0.0.1:2379; kill $etcd; wait $etcd",
    ),
    "… cannot be read by the control plane: chgrp wherry …; chmod g+r …": MachineSymptom(
        "install -m 755 -d $P/var/lib/wherry/addons && chmod 711 $P/var/lib/wherry && mount --bind $P /mnt\n"
        "echo 'a: b' >$P/var/lib/wherry/addons/a.yaml && chmod 600 $P/var/lib/wherry/addons/a.yaml",
        # As the control plane reads it, which has an account of its own under systemd; /mnt is reachable for all accounts.
        f"setpriv --reuid=65534 --regid=65534 --clear-groups $PYTHON -c '{READ}' /mnt/var/lib/wherry/addons/a.yaml",
        "^-rw------- .* a.yaml",
        "chmod 644 $P/var/lib/wherry/addons/a.yaml",
    ),
    "the cluster does not know this machine any more": MachineSymptom(
        """P=$TMP/worker; mkdir -p $P/etc/wherry $P/var/lib/kubelet/pki && chmod 755 $P/etc/wherry
        sed 's/"role": *"[a-z-]*"/"role": "worker"/; s|"joined": *""|"joined": "https://192.0.2.9:6443"|' \\
        $INSTALLED/etc/wherry/wherry.json >$P/etc/wherry/wherry.json && chmod 600 $P/etc/wherry/wherry.json
        "$PYTHON" - >$P/var/lib/kubelet/pki/kubelet-client-current.pem <<'END'
from datetime import timedelta
from kube import pki
from kube.clock import SYSTEM
print(pki.new_ca("a", SYSTEM.now() - timedelta(days=4000)).cert_pem.decode())
END""",
        "wherry status",
        "expired",
        "wherry reset --yes",  # `wherry join` needs another machine
    ),
}
