"""What plans and advice share: a layout file."""

from __future__ import annotations

from pathlib import Path

from stripewise import outputs
from stripewise.api.servers import Named


class HasLayout:
    """A result whose document has a layout file."""

    def __init__(self, layout: str) -> None:
        """Takes the text of the file."""
        self.layout = layout
        """The layout file: what `stripewise apply` and `stripewise export` take."""

    def save(self, path: Named) -> Path:
        """Writes the layout file."""
        outputs.write(self.layout.encode(), Path(path))
        return Path(path)
