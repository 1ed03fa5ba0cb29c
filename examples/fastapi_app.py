"""A FastAPI application that answers at once and works later, with a worker inside the same process.

    holdfast pg start && holdfast migrate              # or set HOLDFAST_URL to your PostgreSQL
    uvicorn --app-dir examples fastapi_app:api
    curl -X POST localhost:8000/reports -H 'Content-Type: application/json' -d '{"customer": 7, "year": 2024}'
    curl localhost:8000/reports/ID

For more throughput, run workers of their own as well: `holdfast worker examples/fastapi_app.py`. Those inside and those
outside share the work, and the reports that were ordered before a restart are made after it.
"""

import asyncio
from typing import Any
from uuid import UUID

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from holdfast import App, NoResult, ResultTimeout, Retry, TaskNotFound

app = App()
# `app.lifespan` runs a worker for as long as the web application lives, and closes the connections at its end.
api = FastAPI(title="Reports", lifespan=app.lifespan)


@app.task(retry=Retry(3, delay="5s"), timeout="5m")
async def make_report(customer: int, year: int) -> dict[str, int]:
    await asyncio.sleep(0.5)  # what takes its time
    return {"customer": customer, "year": year, "orders": (customer * year) % 100}


class ReportOrder(BaseModel):
    customer: int
    year: int


class Report(BaseModel):
    id: UUID
    state: str
    result: Any = None


@api.post("/reports", status_code=202)
async def order_report(order: ReportOrder) -> Report:
    # The key makes a double click harmless: as long as one is unfinished, both get the same report.
    key = f"report {order.customer} {order.year}"
    ref = await app.enqueue(make_report.bind(order.customer, order.year), key=key)
    return Report(id=ref.id, state="ready")


@api.get("/reports/{id}")
async def show_report(id: UUID) -> Report:
    try:
        info = await app.info(id)
    except TaskNotFound as error:
        raise HTTPException(404, "there is no such report") from error
    return Report(id=id, state=info.state, result=info.result)


@api.get("/reports/{id}/result")
async def wait_for_report(id: UUID) -> dict[str, int]:
    """Waits a little, so that the page need not poll."""
    try:
        return await app.ref(id, make_report).result(timeout="20s")
    except ResultTimeout as error:
        raise HTTPException(504, "it takes longer: ask again") from error
    except NoResult as error:  # parked or cancelled
        raise HTTPException(409, str(error)) from error
