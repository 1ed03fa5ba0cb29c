"""What is asked before anything is done: each action has a page that says what it will do, and a form that does it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """Whether somebody means it. The answer yes is a POST to `to`, with a reason if there is one."""

    title: str
    says: list[str]
    verb: str
    to: str
    back: str
    is_danger: bool = False
