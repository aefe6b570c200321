"""A new layout in place of the present one, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stripewise import _native, layouts
from stripewise.pool import Pool

Progress = Callable[[str, int, int], bool]
"""Called with a file's name, bytes done and bytes in all; returning `False` stops the move."""


class Placement:
    """One layout file applied to a pool, which can be taken back exactly: layouts of files and rules."""

    def __init__(self, pool: Pool, directory: Path, layout_file: Path, progress: Progress) -> None:
        """Notes the present layouts in `directory` before anything is changed."""
        self.pool = pool
        self.progress = progress
        self.layout_file = layout_file
        self.previous_file = directory / "previous.layout"
        self.moved: list[_native.Applied] = []
        document = layouts.check(layout_file, pool.file)
        self._rules = _native.rules_snapshot(str(pool.file), str(layout_file))
        paths = [layouts.exact_path(file["path"]) for file in document["files"]]
        self.previous_file.write_text(_native.layout_present(str(pool.file), paths), encoding="utf-8")

    @property
    def checked_bytes(self) -> int:
        """Copied and compared by check sum on the way to the new layout."""
        return sum(applied["copied_bytes"] for applied in self.moved)

    def apply(self) -> None:
        """Moves the files and sets the rules for files to come."""
        self.moved = layouts.apply(self.layout_file, self.pool.file, progress=self.progress)

    def take_back(self) -> None:
        """Moves the files back and restores the rules, when another process that changes layouts is done."""
        layouts.apply(self.previous_file, self.pool.file, rules=False, waits=True, progress=self.progress)
        self._rules.restore()
