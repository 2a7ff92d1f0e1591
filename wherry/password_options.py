"""Places of passwords in the arguments of usual programs, whose options do not say so: `-p` of mysql, `-a` of redis-cli."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Program:
    """The places of passwords in a program's arguments."""

    options: Mapping[str, str] = field(default_factory=dict)
    """Options with a password, and what is before it in the value: ":" in NAME:PASSWORD, "" if it is the whole value."""
    switches: str = ""
    """Letters of options without a value, which may come before another's in one word: `-sSu NAME:PASSWORD`."""
    joined: bool = True
    """True if the value may follow an option's letter in the same word."""
    separate: bool = True
    """True if the value may be the next word; otherwise the option alone prompts for it."""
    after: frozenset[str] = frozenset()
    """Words of which one comes before any password."""
    operands: frozenset[int] = frozenset()
    """Numbers of operands that are passwords, from 1, behind the word of `after`."""
    words: Mapping[str, int] = field(default_factory=dict)
    """Operands that are followed by passwords or names with passwords, by the most that follow."""


_LOGIN = Program({"-p": ""}, after=frozenset({"login"}))
_SECRET = Program({"--from-literal": "="}, joined=False, after=frozenset({"secret"}))
_OC = Program({**_LOGIN.options, **_SECRET.options}, after=_LOGIN.after | _SECRET.after)
_TOKEN = Program(after=frozenset({"login"}), operands=frozenset({1}))
_LDAP = Program({"-w": ""}, switches="xZvnHLAcC")
_SAMBA = Program({"-U": "%", "--user": "%"})
_CURL = {"-u": ":", "--user": ":", "-U": ":", "--proxy-user": ":", "--oauth2-bearer": ""}
_MYSQL = Program({"-p": ""}, separate=False)
_MYSQL_ADMIN = Program({"-p": ""}, separate=False, words={"password": 1, "old-password": 1})
_MONGO = (
    "mongo",
    "mongosh",
    "mongodump",
    "mongorestore",
    "mongoexport",
    "mongoimport",
    "mongofiles",
    "mongostat",
    "mongotop",
)
_BIG_P = ("sqlcmd", "bcp", "tsql", "ipmitool", "mosquitto_pub", "mosquitto_sub", "mosquitto_rr")
_SNMP = (
    "snmpget",
    "snmpgetnext",
    "snmpset",
    "snmpwalk",
    "snmpbulkget",
    "snmpbulkwalk",
    "snmptable",
    "snmpstatus",
    "snmptrap",
)
_KEYS = ("-storepass", "-keypass", "-srcstorepass", "-deststorepass", "-srckeypass", "-destkeypass", "-new")
_PROGRAMS = {
    **dict.fromkeys(("redis-cli", "valkey-cli"), Program({"-a": ""}, joined=False, words={"AUTH": 2, "auth": 2})),
    "sshpass": Program({"-p": ""}, switches="ve"),
    "curl": Program(_CURL, switches="sSfkLiIvgGjNnOJRqBaMpZl#012346"),
    "etcdctl": Program({"--user": ":"}),
    "openssl": Program({"-k": "", "-K": ""}, joined=False),
    "htpasswd": Program(operands=frozenset({2, 3})),
    "mc": Program(after=frozenset({"set", "add"}), operands=frozenset({4})),
    "rabbitmqctl": Program(
        after=frozenset({"add_user", "change_password", "authenticate_user"}), operands=frozenset({2})
    ),
    "sqlplus": Program(operands=frozenset({1})),
    "lftp": Program({"-u": ",", "--user": ","}),
    "ab": Program({"-A": ":", "-P": ":"}),
    **dict.fromkeys(("http", "https"), Program({"-a": ":", "--auth": ":"})),
    "net": Program({"-U": "%", "--user": "%"}, after=frozenset({"ads", "rpc"})),
    "aws": Program(after=frozenset({"set"}), words={"aws_secret_access_key": 1, "aws_session_token": 1}),
    "smbpasswd": Program({"-w": ""}),
    **dict.fromkeys(("psexec", "psexec.exe", "psexec.py"), Program({"-p": ""})),
    "ngrok": Program(after=frozenset({"authtoken", "add-authtoken"}), operands=frozenset({1})),
    "rclone": Program(after=frozenset({"obscure"}), operands=frozenset({1})),
    "steghide": Program({"-p": ""}),
    "hey": Program({"-a": ":"}),
    "slappasswd": Program({"-s": ""}),
    "ldappasswd": Program({"-w": "", "-a": "", "-s": ""}, switches="xZvn"),
    **dict.fromkeys(("ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldapcompare"), _LDAP),
    **dict.fromkeys(("mysqladmin", "mariadb-admin"), _MYSQL_ADMIN),
    **dict.fromkeys((*_MONGO, "cqlsh"), Program({"-p": ""})),
    **dict.fromkeys(_BIG_P, Program({"-P": ""})),
    **dict.fromkeys(("zip", "unzip"), Program({"-P": ""}, switches="rjmqvouflTnxX9")),
    **dict.fromkeys(("7z", "7za", "7zr", "7zz", "rar", "unrar"), Program({"-p": ""}, separate=False)),
    **dict.fromkeys(_SNMP, Program({"-A": "", "-X": "", "-c": ""})),
    **dict.fromkeys(("keytool", "jarsigner"), Program(dict.fromkeys(_KEYS, ""), joined=False)),
    **dict.fromkeys(("smbclient", "smbget", "rpcclient"), _SAMBA),
    **dict.fromkeys(("vault", "bao"), _TOKEN),
    **dict.fromkeys(("docker", "podman", "nerdctl", "buildah", "skopeo", "oras", "crane", "helm", "az"), _LOGIN),
    "kubectl": _SECRET,
    "oc": _OC,
}
_MYSQL_NAME = re.compile(r"(?:mysql|mariadb)[\w-]{0,16}")
PROGRAM_NAME = f"{_MYSQL_NAME.pattern}|{'|'.join(map(re.escape, _PROGRAMS))}"
"""Pattern of the names of all programs."""


def find(name: str) -> Program | None:
    """Return the program with a name, without its folder; None if it is not known."""
    return _PROGRAMS.get(name) or (_MYSQL if _MYSQL_NAME.fullmatch(name) else None)
