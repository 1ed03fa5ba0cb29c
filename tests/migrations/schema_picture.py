"""The picture of the schema: what all migrations together make, as pg_dump shows it.

    python -m tests.migrations.schema_picture --write

rewrites `src/holdfast/_sql/schema.sql`; without `--write` the picture is printed.
"""

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

from holdfast import embedded
from holdfast._db.migrate import migrate
from holdfast.testing.server import new_folder

FILE = Path(__file__).parents[2] / "src" / "holdfast" / "_sql" / "schema.sql"
HEADING = """\
-- The schema as all migrations together make it, for reading and for reviews; partitions are left out.
-- Nothing runs this file. It is written by: python -m tests.migrations.schema_picture --write
"""

_PARTITION = re.compile(r"\b(archive|attempt)_p\d{8}")
_NOISE = re.compile(r"^(--|SET |SELECT pg_catalog\.set_config|\\(un)?restrict )")


def picture(url: str, bindir: Path, schema: str = "holdfast") -> str:
    """The schema of a migrated database, without what differs from server to server and from day to day."""
    command: list[str | Path] = [
        bindir / "pg_dump", "--schema-only", "--no-owner", "--no-privileges", "-n", schema,
        "--exclude-table", f"{schema}.*_p[0-9]*", "--dbname", url,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"pg_dump failed: {done.stderr.strip()}")
    return HEADING + normalised(done.stdout)


def normalised(dump: str) -> str:
    lines = [line.rstrip() for line in dump.splitlines() if not _NOISE.match(line)]
    # pg_dump parts its objects by two empty lines once its comments are gone; no statement of ours has any.
    objects = re.split(r"\n{3,}", "\n".join(lines))
    kept = [text.strip() for text in objects if text.strip() and not _PARTITION.search(text)]
    return "\n" + "\n\n".join(kept) + "\n"


def main() -> None:
    folder = new_folder("holdfast-picture-")
    server = embedded.start(folder, durable=False)
    try:
        asyncio.run(migrate(server.url()))
        text = picture(server.url(), server.bindir)
    finally:
        server.stop("immediate")
        embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)
    if "--write" in sys.argv[1:]:
        FILE.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
