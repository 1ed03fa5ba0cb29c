import gc
import os
import threading
from collections.abc import Iterator

import pytest

from holdfast import App, EnqueueRefused
from holdfast._model.enqueue.request import requests_of
from holdfast._model.garbage import YOUNG, loaded_set_aside, no_collecting


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_as_it_was_before(was_on: bool) -> None:
    before = gc.isenabled()
    gc.enable() if was_on else gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), no_collecting():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() == was_on
    finally:
        gc.enable() if before else gc.disable()


def test_the_collector_stays_away_until_the_last_thread_has_done_without_it() -> None:
    assert gc.isenabled()
    began, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with no_collecting():
            began.set()
            may_end.wait(30)

    thread = threading.Thread(target=other)
    with no_collecting():
        thread.start()
        assert began.wait(30)
    assert not gc.isenabled(), "the other one still does without"
    may_end.set()
    thread.join()
    assert gc.isenabled()
    with no_collecting(5):
        assert gc.isenabled(), "for a few objects it is not sent away"


def test_the_collector_is_back_in_a_forked_child() -> None:
    with no_collecting():
        if (child := os.fork()) == 0:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_is_loaded_is_set_aside_and_given_back() -> None:
    class Loaded:
        itself: object

    loaded, before = Loaded(), gc.get_freeze_count()
    loaded.itself = loaded
    with pytest.raises(ZeroDivisionError), loaded_set_aside():
        assert gc.get_freeze_count() > before
        assert not any(each is loaded for each in gc.get_objects()), "the collector does not walk over it"
        raise ZeroDivisionError
    assert gc.get_freeze_count() == 0
    assert any(each is loaded for each in gc.get_objects()), "from now on it may be garbage as before"


@pytest.mark.parametrize(("told", "kept"), [(700, YOUNG), (YOUNG + 1, YOUNG + 1), (0, 0)])
def test_the_collector_comes_by_more_rarely_unless_it_was_told_so_already(told: int, kept: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(told, *before[1:])
    try:
        with loaded_set_aside():
            assert gc.get_threshold() == (kept, *before[1:])
        assert gc.get_threshold() == (told, *before[1:])
    finally:
        gc.set_threshold(*before)


def test_the_collector_comes_back_when_a_request_is_refused() -> None:
    """And what a caller gives is read with it on: that may be anybody's code."""
    app = App()
    seen: list[bool] = []

    @app.task
    async def note(n: int) -> None: ...

    def given() -> Iterator[object]:
        seen.append(gc.isenabled())
        yield note.bind(1)
        yield "nothing that can be enqueued"

    with pytest.raises(EnqueueRefused):
        requests_of(given())
    assert seen == [True]
    assert gc.isenabled()
