"""`examples/mail_with_retries.py`, with a mail server that answers as a script says."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from email import message_from_bytes
from email.message import Message
from typing import Any

import pytest

from holdfast.testing import Harness

from .support import attempts, example

mail = example("mail_with_retries")


@pytest.fixture
def holdfast_tasks() -> Any:
    return mail.app


class MailServer:
    """Enough of SMTP for one client. Each command is answered by the next line of its script, then with 250."""

    def __init__(self, **script: list[str]) -> None:
        self.script = script
        self.hang_up_after = 0
        """How many messages it takes without saying so."""
        self.messages: list[Message] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            command = line[:4].decode().strip().upper()
            planned = self.script.get(command, [])
            if planned:
                writer.write(planned.pop(0).encode() + b"\r\n")
            elif command == "DATA":
                writer.write(b"354 go on\r\n")
                self.messages.append(message_from_bytes((await reader.readuntil(b"\r\n.\r\n"))[:-5]))
                if len(self.messages) <= self.hang_up_after:
                    break
                writer.write(b"250 taken\r\n")
            elif command == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                writer.write(b"250 fine\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def mail_server(monkeypatch: pytest.MonkeyPatch, **script: list[str]) -> AsyncIterator[MailServer]:
    made = MailServer(**script)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    monkeypatch.setenv("SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("SMTP_PORT", str(server.sockets[0].getsockname()[1]))
    async with server:
        yield made


async def test_a_mail_is_delivered(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = await mail.send_mail.enqueue("ada@example.org", subject="Hello", text="How are you?")
    async with mail_server(monkeypatch) as server:
        await holdfast.drain()
    [message] = server.messages
    assert (message["To"], message["Subject"]) == ("ada@example.org", "Hello")
    assert message.get_payload() == "How are you?"
    assert message["Message-ID"] == await ref.result()


async def test_a_mail_sent_twice_can_be_told_by_its_id(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = await mail.send_mail.enqueue("ada@example.org", subject="Hello", text="Twice?")
    async with mail_server(monkeypatch) as server:
        server.hang_up_after = 2
        await holdfast.run_all()
    assert [outcome for _, outcome in attempts(holdfast, ref.id)] == ["retried", "retried", "done"]
    assert [message["Message-ID"] for message in server.messages] == [await ref.result()] * 3


async def test_not_now_is_tried_again_minutes_later(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    holdfast.clock.advance(0)
    ref = await mail.send_mail.enqueue("ada@example.org", subject="Hello", text="Still there?")
    later = ["451 come again", "451 come again"]
    async with mail_server(monkeypatch, RCPT=later, MAIL=["421 too busy"]) as server:
        await holdfast.drain()
        info = await ref.info()
        assert info.error is not None
        assert (info.error["type"].rpartition(".")[2], info.error["message"]) == ("NotNow", "421 too busy")
        assert info.run_at is not None
        assert timedelta(minutes=4) <= info.run_at - holdfast.clock.now() <= timedelta(minutes=6)
        await holdfast.run_all()
    assert [outcome for _, outcome in attempts(holdfast, ref.id)] == ["retried", "retried", "retried", "done"]
    assert [message["Message-ID"] for message in server.messages] == [await ref.result()]


@pytest.mark.parametrize("script", [{"RCPT": ["550 no such mailbox"]}, {"DATA": ["554 no such mailbox"]}], ids=str)
async def test_no_means_no_and_somebody_is_told(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, script: dict[str, list[str]]
) -> None:
    ref = await mail.send_mail.enqueue("nobody@example.org", subject="Hello", text="?")
    async with mail_server(monkeypatch, **script) as server:
        await holdfast.drain()
    assert server.messages == []
    assert attempts(holdfast, ref.id) == [("main", "failed")]
    [told] = [record for record in caplog.records if record.name == "mail"]
    assert told.levelno == logging.ERROR
    assert "a mail to nobody@example.org was not sent: 55" in told.getMessage()
    assert f"holdfast show {ref.id}" in told.getMessage()


async def test_without_a_server_it_is_tried_six_times_and_a_retry_sends_it(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mail_server(monkeypatch):
        pass  # its port is free now, and nobody listens there
    ref = await mail.send_mail.enqueue("ada@example.org", subject="Hello", text="?")
    await holdfast.run_all()
    info = await ref.info()
    assert info.state == "parked"
    assert info.error is not None
    assert info.error["type"] == "ConnectionRefusedError"
    assert [outcome for _, outcome in attempts(holdfast, ref.id)] == ["retried"] * 5 + ["failed"]
    await holdfast.app.retry(ref.id)
    async with mail_server(monkeypatch) as server:
        await holdfast.drain()
    assert (await ref.info()).state == "done"
    assert len(server.messages) == 1
