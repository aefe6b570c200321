"""What an administrator allows a service that moves data: options of `adapt`, and of `mount` with --adapt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise import StripewiseError
from stripewise.api.pools import parse_bytes
from stripewise.cli.console import UsageError

if TYPE_CHECKING:
    from stripewise.api.adapt import Limits

Limit = Annotated[
    str | None,
    typer.Option(
        "--limit",
        metavar="SIZE",
        help="Most bytes copied in 24 hours, such as 100GB; of more the part that gains most.",
    ),
]
Hours = Annotated[
    str | None,
    typer.Option("--hours", metavar="FROM-TO", help="Hours in which data may move, such as 22-6; moves stop then."),
]


def limits(limit: str | None, hours: str | None, horizon_s: float | None = None) -> Limits:
    """The limits that the options ask for. Raises `UsageError` with the option where they cannot be so."""
    # To load it takes longer than what most commands do that have these options.
    from stripewise.api.adapt import DAY_S, Limits

    day_bytes = None if limit is None else size_of("--limit", limit)
    if day_bytes == 0:
        raise UsageError(f"--limit {limit}: nothing would ever move; name at least 1B, or ask with --dry-run")
    return Limits(DAY_S if horizon_s is None else horizon_s, day_bytes, None if hours is None else _hours(hours))


def size_of(option: str, text: str) -> int:
    """The bytes that an option names. Raises `UsageError` with the option where that is no size."""
    try:
        return parse_bytes(text)
    except StripewiseError as error:
        raise UsageError(f"{option} {text}: {error}") from None


def at_address(metrics: str | None) -> None:
    """Raises `UsageError` for what is no address to serve metrics at; nothing is listened at."""
    if metrics is not None:
        from stripewise.api import metrics as serving

        try:
            serving.address(metrics)
        except StripewiseError as error:
            raise UsageError(f"--metrics {error}") from None


def _hours(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,2})-(\d{1,2})", text)
    begin, end = (int(number) for number in found.groups()) if found else (24, 24)
    if begin > 23 or end > 23:
        raise UsageError(f"--hours {text}: write two hours from 0 to 23, such as 22-6")
    if begin == end:
        raise UsageError(f"--hours {text}: nothing would ever move; leave it out to move data at any hour")
    return begin, end
