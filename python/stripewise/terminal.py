"""Text that others have written, for a terminal: it is shown as it is and commands nothing."""

import re

_INVISIBLE = (
    "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164"
    "\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
"""What is shown as nothing: names that differ by it alone would look alike. Some of it turns the order of letters."""

_COMMANDING = re.compile(f"[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff{_INVISIBLE}]")
"""What a terminal obeys, what it shows as nothing, and bytes that are no text; not tab and line feed."""


def plain(text: str) -> str:
    """The text with what a terminal would obey, or show as nothing, written out, as `\\x1b` for an escape."""
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
