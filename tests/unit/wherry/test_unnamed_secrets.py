"""Secrets in statements of databases, on the input of programs and in addresses: a bug report must not contain them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cost import Case, judge_time
from wherry.redaction import REMOVED, redacted, without_values

STATEMENTS = [
    "ALTER ROLE app WITH PASSWORD '{}' VALID UNTIL 'x'",
    "ALTER ROLE app WITH ENCRYPTED PASSWORD E'{}'",
    r"psql -c 'ALTER ROLE app PASSWORD '\''{}'\'''",
    "ALTER ROLE app PASSWORD 'it''s {}'",
    "CREATE USER a IDENTIFIED BY '{}'",
    'CREATE USER a IDENTIFIED BY "{}"',
    "CREATE USER a IDENTIFIED BY {};",
    "CREATE USER a IDENTIFIED BY PASSWORD '{}'",
    "create user a identified by '{}'",
    "grant all on x to a identified with plugin by '{}'",
    "CREATE USER a@'%' IDENTIFIED WITH mysql_native_password BY '{}'",
    "SET PASSWORD FOR 'root'@'localhost' = '{}'",
    "SELECT PASSWORD('{}')",
    "FATAL: password '{}' is wrong",
    'the password is "{}"',
]
INPUTS = [
    "echo {} | docker login -u u --password-stdin registry.test",
    "echo -n '{}' |\n  docker login --password-stdin",
    "printf '%s' 'a;{}'|helm registry login --password-stdin",
    "echo echo{} | docker login -u u \\\n --password-stdin",
    "echo root:{} | chpasswd",
    'echo "root:{}" | sudo chpasswd -e',
    "echo {} | passwd --stdin root",
    "echo {} | sudo -S ls",
    "echo {} | htpasswd -i file user",
    "echo {} | gh auth login --with-token",
    "chpasswd <<< 'root:a {}'",
    "docker login -u a --password-stdin <<<{}",
    "wg set wg0 private-key <(echo {}) peer x",
    "wg set wg0 peer x preshared-key <(echo '{}')",
    "app --password-file <(printf {})",
]
OTHERS = [
    "redis-cli <<< 'AUTH {}'",
    "redis-cli -h x AUTH {}",
    "redis-cli AUTH default {}",
    "echo AUTH default {} | redis-cli",
    r"printf 'AUTH {}\r\nPING\r\n' | nc redis 6379",
    "sh -c 'passwd {}'",
    "sudo passwd {}",
    "dsn=scott/{}@host.test:1521/xe",
    "scott/{}@//host.test:1521/xe",
    "GET /callback?state=a&code={}&b=c",
    "/callback?code={}",
]
SECRET = "S3cr3tV4lue99"


@pytest.mark.parametrize("form", [*STATEMENTS, *INPUTS, *OTHERS])
def test_secrets_in_statements_commands_and_addresses_are_removed(form: str) -> None:
    text = form.format(SECRET)
    for around in (f"a {text}\nb", json.dumps({"a": text, "b": 1})):
        found = redacted(around)
        assert SECRET not in found and REMOVED in found and "a" in found[:3]
    line = json.dumps(without_values({"command": ["sh", "-c", text]}))
    assert SECRET not in line and REMOVED in line


@pytest.mark.parametrize("text", [f"AUTH {SECRET}", f"AUTH default {SECRET}", f"passwd {SECRET}"])
def test_a_command_on_a_line_by_itself_loses_its_password(text: str) -> None:
    assert redacted(f"a\n{text}\nb") == f"a\n{text.split()[0]} {REMOVED}\nb"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (["passwd", SECRET], ["passwd", REMOVED]),
        (["passwd", "root"], ["passwd", "root"]),
        (["cat", "/etc/passwd", "/etc/hosts"], ["cat", "/etc/passwd", "/etc/hosts"]),
        (["redis-cli", "-h", "x", "AUTH", SECRET], ["redis-cli", "-h", "x", "AUTH", REMOVED]),
        (["valkey-cli", "AUTH", "u", SECRET], ["valkey-cli", "AUTH", REMOVED, REMOVED]),
        (["mysqladmin", "password", SECRET, "x"], ["mysqladmin", "password", REMOVED, "x"]),
    ],
)
def test_arguments_of_passwd_and_redis_are_removed(line: list[Any], left: list[Any]) -> None:
    assert without_values(line) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("ALTER ROLE a PASSWORD 'x' VALID UNTIL 'y'", f"ALTER ROLE a PASSWORD {REMOVED} VALID UNTIL 'y'"),
        ("echo x | chpasswd; ls", f"echo {REMOVED} | chpasswd; ls"),
        ("chpasswd <<< 'a:x' && ls", f"chpasswd <<< {REMOVED} && ls"),
        ("private-key <(echo x) peer y", f"private-key <(echo {REMOVED}) peer y"),
        ("scott/x@h:1521/xe rest", f"scott/{REMOVED}@h:1521/xe rest"),
        ("echo a; echo x | chpasswd", f"echo a; echo {REMOVED} | chpasswd"),
    ],
)
def test_what_is_beside_such_a_secret_stays(text: str, left: str) -> None:
    assert redacted(text) == left


@pytest.mark.parametrize(
    "text",
    [
        'secrets "db-password" not found',
        'MountVolume.SetUp failed for volume "v" : secret "web" not found; references non-existent config key',
        'FATAL: password authentication failed for user "bob"',
        'password authentication was requested by "bob"',
        "the object identified by \"web-1\" and the user identified by 'bob'",
        "objects are identified by name: web",
        'err := manager.VerifyUserPassword("bob")',
        "open /etc/passwd \"x\": no such file; /etc/passwd ('x')",
        "AUTH failed\nAUTH LOGIN\nNOAUTH Authentication required, WRONGPASS; SMTP AUTH PLAIN 1",
        'msg="AUTH failed" code=500',
        "passwd root\npasswd file not found 5",
        "echo hello | grep h\ndocker login registry.test < file",
        "echo hello; cat file | chpasswd",
        "cat file | chpasswd && echo hello | cat",
        "diff <(echo a) <(echo b)",
        "cat <<< 'hello'",
        "https://x/?code=404 /?code=InvalidArgument&exit_code=1234567890",
        "team/app@sha256:0123456789 registry.test:5000/team/app:1 a/b@example.com",
        "http://10.0.0.1:80/a?mail=u@h.example:80/x node_modules/@scope:1/x",
        "echo hello | tee /etc/passwd.new | wc",
    ],
)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "unit",
    [
        *("PASSWORD '", "PASSWORD('", "password for a", "password for a='", "IDENTIFIED BY ", "IDENTIFIED BY '"),
        *("identified with a by '", "identified by 'a' ", "create user identified by ", "PASSWORD E'x\\'"),
        *(
            "echo ",
            "echo a | chpasswd ",
            "|chpasswd ",
            "echo|chpasswd",
            "echo |\\",
            "|\\a chpasswd ",
            "echo '|chpasswd ",
        ),
        *(
            "chpasswd <<<",
            "chpasswd <<< '",
            "chpasswd " * 9 + "<<<",
            "<(echo ",
            "password <(echo ",
            "a" * 99 + "<(echo ",
        ),
        *(
            "AUTH ",
            "\nAUTH a",
            "\nAUTH " + "a" * 64,
            "echo AUTH a ",
            "passwd ",
            "\npasswd a",
            "'passwd " + "a" * 64 + "\t",
        ),
        *(
            "a/",
            "a/b",
            " a/b@",
            " a/b@c:1",
            "a" * 128 + "/",
            "?code=",
            "&code=a",
            "&code=" + "a" * 64,
            "--password-stdin ",
        ),
    ],
)
def test_time_of_these_forms_is_proportional_to_the_text(unit: str) -> None:
    judge_time(Case(unit, lambda size: unit * (size // len(unit)), redacted))
