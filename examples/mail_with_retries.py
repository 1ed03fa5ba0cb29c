"""Mail by SMTP, tried again as each error deserves.

It shows a retry rule per exception, `Fail` for what no retry can help, a timeout, an idempotency key that makes a mail
sent twice recognisable, and `@app.on_failure`.

    pip install aiosmtpd
    python -m aiosmtpd -n -l localhost:8025            # a mail server that prints what it gets
    holdfast dev examples/mail_with_retries.py         # in a second terminal
    holdfast enqueue send_mail to=ada@example.org subject=Hello text="How are you?" --wait   # in a third

End the mail server and enqueue another one: the worker tries again, longer and longer apart, until the server is back.
"""

import logging
import os
import smtplib
from email.message import EmailMessage

from holdfast import App, Context, Fail, Failure, Retry

log = logging.getLogger("mail")
app = App()


class NotNow(Exception):
    """The server answered with a code from 400 to 499: it is busy, or wants to see whether we come back."""


@app.task(
    queue="mail",
    timeout="1m",
    retry=[  # the first rule that fits the exception counts
        Retry(8, delay="5m", backoff=1.5, max_delay="1h", on=NotNow),
        Retry(5, delay="2s", max_delay="10m", on=OSError),  # no connection, or it broke; smtplib's errors are OSErrors
    ],
)
def send_mail(ctx: Context, to: str, subject: str, text: str) -> str:
    """A plain function: it blocks, so it is executed in a thread."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", to, subject
    # The same in all attempts. If we crash after the server took the mail, it is sent again, and can be told by this.
    message["Message-ID"] = f"<{ctx.idempotency_key.replace(':', '.')}@example.org>"
    message.set_content(text)

    host, port = os.environ.get("SMTP_HOST", "localhost"), int(os.environ.get("SMTP_PORT", "8025"))
    with smtplib.SMTP(host, port, timeout=20) as server:
        try:
            server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            code, answer = error.recipients[to]
            raise _judged(code, answer) from error
        except smtplib.SMTPResponseException as error:
            raise _judged(error.smtp_code, error.smtp_error) from error
    return str(message["Message-ID"])


def _judged(code: int, answer: bytes | str) -> Exception:
    text = f"{code} {answer.decode(errors='replace') if isinstance(answer, bytes) else answer}"
    # From 500 on the server means it: no such mailbox. A person must look, so the task is parked at once.
    return NotNow(text) if code < 500 else Fail(text)


@app.on_failure
def tell_somebody(failure: Failure) -> None:
    """Called for every task that is parked, in the process that parked it. Here you would page somebody."""
    task = failure.task
    to = task.args["to"] if task.kind == "send_mail" else "?"
    log.error("a mail to %s was not sent: %s. To see why: holdfast show %s", to, (task.error or {})["message"], task.id)
