"""What a step tells those who have only the database."""

from dataclasses import dataclass

import msgspec
import pydantic
import pytest

from holdfast import Context, Retry, Tasks
from holdfast._model.json.problems import stored_names


class Renamed(msgspec.Struct, rename="camel"):
    order_id: int


@dataclass
class Plain:
    a: int
    b: str = ""


class Model(pydantic.BaseModel):
    a: int


class Open(pydantic.BaseModel, extra="allow"):
    a: int


class Aliased(pydantic.BaseModel):
    a: int = pydantic.Field(alias="b")


@pytest.mark.parametrize(
    ("cls", "names"), [(Plain, ("a", "b")), (Renamed, ("orderId",)), (Model, ("a",)), (Open, None), (Aliased, None)]
)
def test_names_as_they_are_stored(cls: type, names: tuple[str, ...] | None) -> None:
    assert stored_names(cls) == names


def test_the_arguments_of_a_function_and_its_errors() -> None:
    tasks = Tasks()

    @tasks.task(retry=Retry(5))
    async def send(ctx: Context, to: str, copies: int = 1) -> None: ...

    @tasks.task(retry=[Retry(5, on=OSError), Retry(1)])
    async def several(n: int) -> None: ...

    @tasks.task
    async def once() -> None: ...

    about = {kind: step.about for (kind, _), step in tasks._steps.items()}
    assert about == {
        "send": {"fields": ["to", "copies"], "errors": 6},
        "several": {"fields": ["n"]},
        "once": {"fields": []},
    }
