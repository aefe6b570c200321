"""Text that others have written, for a terminal: it is shown as it is and commands nothing."""

import re

_COMMANDING = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
"""What a terminal obeys, or what turns the order of letters, and bytes that are no text; not tab and line feed."""


def plain(text: str) -> str:
    """The text with what a terminal would obey written out, as `\\x1b` for an escape."""
    return _COMMANDING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def name(text: str) -> str:
    """A name within a line: as `plain`, on that one line."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")


def middle(text: str, width: int) -> str:
    """At most `width` letters of a name: what is too long loses its middle, as names differ in their ends."""
    if len(text) <= width:
        return text
    head = max(0, width - 1) // 3
    tail = max(0, width - 1 - head)
    return text[:head] + "…"[:width] + (text[-tail:] if tail else "")
