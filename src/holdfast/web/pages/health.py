"""The database: how large its tables are, what was not cleaned up, and what keeps it from being cleaned up."""

from dataclasses import dataclass

from holdfast.insights import database as asked
from holdfast.insights.database import History, Index, Server, Table, Transaction
from holdfast.web.context import Look
from holdfast.web.routes import page

LARGEST = 20
"""Indexes that are shown: the largest."""


@dataclass(frozen=True)
class Health:
    """The database as this role sees it. `total` is in bytes, of all tables and indexes of the schema."""

    server: Server
    total: int
    tables: list[Table]
    indexes: list[Index]
    transactions: list[Transaction]
    history: list[History]


@page("/database", "Database", "health.html", menu=True)
async def database(look: Look) -> Health:
    """Tables, indexes, history, dead rows, old transactions and the queue of notifications."""
    tables = await look(asked.tables(look.queries))
    return Health(
        await look(asked.server(look.queries)),
        sum(each.table_bytes + each.index_bytes for each in tables),
        tables,
        (await look(asked.indexes(look.queries)))[:LARGEST],
        await look(asked.transactions(look.queries)),
        await look(asked.history(look.queries)),
    )
