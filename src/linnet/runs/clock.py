"""Dates as the files spell them: ISO-8601, UTC, whole seconds, `Z`."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def iso_now() -> str:
    """This moment."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def unix_seconds(text: object) -> float | None:
    """Unix seconds of an ISO-8601 date; None if it is not one. Without a zone it is taken as UTC."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
