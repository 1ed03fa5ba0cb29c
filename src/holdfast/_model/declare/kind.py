"""Kinds of tasks with several steps."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeVar, Unpack

from holdfast._model.declare.names import check_step
from holdfast._model.declare.options import EnqueueOptions, StepOptions, Upgrade, check_known, old_names, settings
from holdfast._model.declare.step import OWNER, ClassStep, Step, result_decoder
from holdfast._model.declare.validate import check_executor, check_run, check_step_class
from holdfast._model.enqueue.call import Call, StepValue, StepWithContext, StepWithoutContext, call_of
from holdfast._model.enqueue.ref import Ref
from holdfast.errors import ConfigError, DeclarationError, EnqueueRefused

if TYPE_CHECKING:
    from holdfast._model.declare.tasks import Tasks

KR = TypeVar("KR", default=Any)
StepT = TypeVar("StepT", bound=StepWithContext | StepWithoutContext)


class Kind(Generic[KR]):
    """A kind of task: its steps are classes declared with `@kind.step`."""

    def __init__(
        self,
        tasks: "Tasks",
        name: str,
        result: Any,
        options: Mapping[str, Any],
        was: dict[str, Upgrade | None],
    ) -> None:
        self.name = name
        self.result_type = result
        self.steps: dict[str, Step] = {}
        self._tasks = tasks
        self._options = options
        self._was = was
        self._decode_result = result_decoder(result)

    @overload
    def step(self, cls: type[StepT], /) -> type[StepT]: ...
    @overload
    def step(self, /, **options: Unpack[StepOptions]) -> Callable[[type[StepT]], type[StepT]]: ...
    def step(self, cls: type[Any] | None = None, /, **options: Unpack[StepOptions]) -> Any:
        """Declare a class as a step of this kind. It stays the class it was."""
        check_known(f"@{self.name}.step", options, StepOptions)

        def declare(cls: type[Any]) -> type[Any]:
            self._declare(cls, options)
            return cls

        return declare if cls is None else declare(cls)

    async def enqueue(self, first: StepValue, /, *, conn: object = None, **options: Unpack[EnqueueOptions]) -> Ref[KR]:
        """Enqueue a task of this kind that begins with the step `first`."""
        call = call_of(first)
        if call.kind != self.name:
            if isinstance(first, Call):
                raise EnqueueRefused(f"{call.kind} is not a step of {self.name}: use app.enqueue(...) for it")
            raise EnqueueRefused(
                f"{type(first).__name__} is a step of {call.kind}, not of {self.name}: use app.enqueue(...) for it"
            )
        return await self._tasks._app().enqueue(first, conn=conn, **options)

    def _declare(self, cls: Any, options: StepOptions) -> None:
        what = f"@{self.name}.step"
        check_step_class(cls, what)
        is_async, takes_ctx = check_run(cls, what)
        try:
            name = check_step(options.get("name", cls.__name__))
        except ConfigError as error:
            raise DeclarationError(f"{what}: {error}") from None
        chosen = settings(f"{what} {name}", self._options, options)
        check_executor(chosen, cls, f"{what} {name}", is_async=is_async)
        step = ClassStep(
            self.name,
            name,
            chosen,
            cls,
            is_async=is_async,
            takes_ctx=takes_ctx,
            result_type=lambda: self.result_type,
        )
        was = old_names(f"{what} {name}", options.get("was"), check_step)
        self._tasks._add_steps(rows_of(step, self._was, was))
        self.steps[name] = step
        setattr(cls, OWNER, step)

    def __repr__(self) -> str:
        return f"<Kind {self.name}: {', '.join(self.steps) or 'no steps yet'}>"


def rows_of(
    step: Step, old_kinds: dict[str, Upgrade | None], old_steps: dict[str, Upgrade | None]
) -> dict[tuple[str, str], Step]:
    """Every (kind, step) a row may say that `step` runs: a kind's upgrade comes before a step's."""
    return {
        (kind, name): step.upgraded(kind_upgrade, step_upgrade)
        for kind, kind_upgrade in [(step.kind, None), *old_kinds.items()]
        for name, step_upgrade in [(step.name, None), *old_steps.items()]
    }
