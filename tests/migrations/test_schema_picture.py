"""X1: `schema.sql` shows what the migrations make, so that a review sees every change of the schema."""

import re
import shutil
from collections.abc import Iterator

import pytest

from holdfast import embedded
from holdfast.testing.server import new_folder

from .conftest import execute
from .schema_picture import FILE, normalised, picture


@pytest.fixture(scope="module")
def server() -> Iterator[embedded.Server]:
    folder = new_folder("holdfast-picture-")
    started = embedded.start(folder, durable=False)
    yield started
    started.stop("immediate")
    embedded.reset(folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_X1_the_picture_is_the_sum_of_the_migrations(server: embedded.Server, holdfast_url: str) -> None:
    [(number,)] = execute(holdfast_url, "SELECT current_setting('server_version_num')::integer / 10000")
    ours = int(re.match(r"\d+", server.version)[0])  # type: ignore[index]
    if number != ours:
        pytest.skip(f"the server under test is PostgreSQL {number}, and the pg_dump at hand is of {ours}")
    found = picture(holdfast_url, server.bindir)
    assert found == FILE.read_text("utf-8"), "rewrite it: python -m tests.migrations.schema_picture --write"


def test_the_picture_leaves_out_partitions_and_what_differs_between_servers() -> None:
    text = FILE.read_text("utf-8")
    assert "CREATE TABLE holdfast.task (" in text and "COMMENT ON COLUMN holdfast.task.id" in text
    assert not re.search(r"_p\d{8}|restrict|^SET |Dumped|OWNER TO", text, re.MULTILINE)


def test_a_dump_is_normalised() -> None:
    dump = (
        "--\n-- PostgreSQL database dump\n--\n\n\\restrict abc\n\n-- Dumped by pg_dump version 18\n\nSET x = 1;\n\n"
        "CREATE SCHEMA s;\n\n\n--\n-- Name: t\n--\n\nCREATE TABLE s.t (\n    a integer\n);\n\n\n"
        "ALTER TABLE ONLY s.archive ATTACH PARTITION s.archive_p20300101 FOR VALUES FROM (1) TO (2);\n\n\n"
    )
    assert normalised(dump) == "\nCREATE SCHEMA s;\n\nCREATE TABLE s.t (\n    a integer\n);\n"
