"""What plans and advice share: a layout file."""

from __future__ import annotations

from pathlib import Path

from stripewise.api.servers import Named


class HasLayout:
    """A result whose document has a layout file."""

    def __init__(self, layout: str) -> None:
        """Takes the text of the file."""
        self.layout = layout
        """The layout file: what `stripewise apply` and `stripewise export` take."""

    def save(self, path: Named) -> Path:
        """Writes the layout file."""
        Path(path).write_text(self.layout, encoding="utf-8")
        return Path(path)
