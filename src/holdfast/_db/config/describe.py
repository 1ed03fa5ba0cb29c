"""A database in few words, for people: no password, no percent-encoding."""

import os
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast._model.json.redact import redact

PORT = "5432"


def described(url: str) -> str:
    """`ada@db.example.com:6432/shop`, or `shop on the socket /var/run/postgresql`."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        return redact(url)  # whoever connects to it will say what is wrong
    user = _text(given, "user")
    name = _text(given, "dbname") or user or _text({}, "database") or "the default database"
    hosts = (_text(given, "host") or _text(given, "hostaddr")).split(",")
    ports = (_text(given, "port") or PORT).split(",")
    if not hosts[0] or hosts[0].startswith(("/", "@")):
        return f"{name} on the socket {hosts[0]}" if hosts[0] else f"{name} on the local socket"
    if len(ports) == 1:
        ports *= len(hosts)
    places = [host if port in ("", PORT) else f"{host}:{port}" for host, port in zip(hosts, ports, strict=False)]
    return (f"{user}@" if user else "") + ",".join(places) + f"/{name}"


def _text(given: dict[str, Any], name: str) -> str:
    """As given, else as libpq takes it from the environment."""
    return str(given.get(name) or os.environ.get(f"PG{name.upper()}", ""))
