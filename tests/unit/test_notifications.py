"""The words of notifications: those that SQL sends are those that Python hears."""

import re
from pathlib import Path
from uuid import uuid4

import holdfast
from holdfast._db.driver.notifications import RECONNECTED, Notification, Word, about_tasks, understood

SQL = Path(holdfast.__file__).parent / "_sql"
SENT = re.compile(r"pg_notify\(holdfast\.channel\(\), (?:concat_ws\(' ', )?'([^' ]*)")


def test_sql_sends_words_that_are_known() -> None:
    texts = [file.read_text() for folder in ("migrations", "statements") for file in (SQL / folder).glob("*.sql")]
    sent = {word for text in texts for word in SENT.findall(text)}
    assert sent == {Word.QUEUE, Word.CANCEL, Word.ENDED, Word.STOP, Word.PAUSE, Word.SCHEDULE}
    # Python gives the words of the only other statement.
    notified = sum(text.count("pg_notify(") for text in texts)
    assert notified == sum(len(SENT.findall(text)) for text in texts) + 1


def test_what_is_heard_is_understood_or_passed_over() -> None:
    one, two = uuid4(), uuid4()
    assert understood("stop") == Notification(Word.STOP, "")
    assert understood(RECONNECTED) == Notification(Word.QUEUE, "*")
    assert understood(f"queue mail {one}") == Notification(Word.QUEUE, f"mail {one}")
    assert understood("") is understood("hello world") is understood("QUEUE mail") is None
    heard = understood(f"ended {one} nonsense {two.hex}")
    assert heard is not None and heard.ids == [one, two]


def test_many_tasks_are_told_of_in_notifications_that_the_server_takes() -> None:
    ids = [uuid4() for _ in range(450)]
    told = about_tasks(Word.ENDED, ids)
    assert len(told) == 3 and max(map(len, told)) < 8000
    assert [id for text in told if (heard := understood(text)) for id in heard.ids] == ids
    assert about_tasks(Word.WAIT, []) == []
