"""Connections: of another process, of another kind, not usable. More: tests/callers/test_wrong_usage.py."""

from .conftest import Project

FORKED = """
import os
from hello import app, hello

app.sync.enqueue(hello.bind("parent"))
child = os.fork()
if child == 0:
    app.sync.enqueue(hello.bind("child"))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
app.sync.enqueue(hello.bind("parent again"))
"""

UNUSABLE = """
import os
import psycopg
from hello import app, hello

connection = psycopg.connect(os.environ["HOLDFAST_URL"])
{spoil}
try:
    app.sync.enqueue(hello.bind("Ada"), conn=connection)
except psycopg.Error as error:
    print(type(error).__name__, error)
"""


def test_34_an_app_of_the_parent_process(project: Project) -> None:
    """Nothing to tell: a child gets connections of its own."""
    said = project.python(FORKED, "-W", "error::ResourceWarning")
    assert said.code == 0, said.err
    names = project.sql("SELECT args->>'name' FROM holdfast.task ORDER BY id")
    assert names == [("parent",), ("child",), ("parent again",)]


def test_35_connections_that_cannot_be_used_any_more(project: Project) -> None:
    """It is the caller's connection, and its library's own error."""
    closed = project.python(UNUSABLE.format(spoil="connection.close()"))
    closed.telling("OperationalError the connection is closed")
    failed = project.python(UNUSABLE.format(spoil="try: connection.execute('SELECT 1/0')\nexcept psycopg.Error: pass"))
    failed.telling("InFailedSqlTransaction current transaction is aborted")
    assert project.sql("SELECT count(*) FROM holdfast.task") == [(0,)]
