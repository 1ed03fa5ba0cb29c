"""The one tone of each state."""

from holdfast._model.run.outcome import OUTCOMES

TONES: dict[str, str] = {
    **{outcome.word: outcome.tone for outcome in OUTCOMES},
    "running": "running",
    "due": "due",
    "ready": "due",
    "retrying": "warning",
    "unroutable": "warning",
    "unserved": "warning",
    "paused": "warning",
    "stopping": "warning",
    "parked": "bad",
    "lost": "bad",
    "waiting": "waiting",
    "active": "good",
    "failing": "bad",
    "orphaned": "warning",
}
"""The one tone of each state, phase, outcome and condition; all others are quiet."""


def tone(word: str | None) -> str:
    """The tone of a state, a phase, an outcome or a condition; the stylesheet gives it a colour."""
    return TONES.get(word or "", "quiet")
