"""The mount table of this process, and which pool a mount of ours serves."""

import os
from dataclasses import dataclass
from pathlib import Path

from stripewise._native import StripewiseError

TABLE = Path("/proc/self/mountinfo")
OURS = "fuse.stripewise"
"""The type of our mounts in the table."""
POOL_FILE = "system.stripewise.pool"
"""The attribute by which every file of a mount names the pool file."""

TRANSPORT = "system.stripewise.transport"
"""The attribute by which every file of a mount says how requests travel between the kernel and it."""

OPENS = "system.stripewise.opens"
"""The attribute by which a file of a mount says what its last opens have taken."""


@dataclass(frozen=True)
class Mount:
    """One line of the mount table."""

    id: int
    root: str
    """The directory of the file system that is at `point`; not `/` for a bind mount."""
    point: Path
    fs_type: str
    source: str
    """What is mounted: a device; the pool's name or file for ours."""
    user_id: int | None
    """The user whose process serves it, of a FUSE mount."""

    @property
    def is_trusted(self) -> bool:
        """Whether root or this process's own user serves it: another user's mount may say anything of itself."""
        return self.fs_type == OURS and self.user_id in (0, os.geteuid())

    def pool_file(self) -> Path:
        """The pool file that the mount serves, as it says itself.

        Raises `StripewiseError` for a mount of another user's and for one that does not answer.
        """
        if not self.is_trusted:
            raise StripewiseError(
                f"the mount at {self.point} is of user {self.user_id}, who may make it say anything; "
                "name its pool file with --pool"
            )
        try:
            return Path(os.fsdecode(os.getxattr(self.point, POOL_FILE)))
        except OSError as error:
            raise StripewiseError(
                f"the mount at {self.point} does not say which pool it serves ({error.strerror}); mount it again, or "
                "name its pool file with --pool"
            ) from error

    def transport(self) -> str | None:
        """How requests travel between the kernel and the process that serves it, in its words.

        `None` for a mount of another user's, and for one that does not say it.
        """
        if not self.is_trusted:
            return None
        try:
            return os.fsdecode(os.getxattr(self.point, TRANSPORT))
        except OSError:
            return None

    def opens(self, name: str) -> str | None:
        """What the last opens of the file `name` of its pool have taken, in the mount's words.

        `None` where the file is not below it, and for a mount that does not say it. Raises `PermissionError` where it
        says it only to users who may read the file, and this one may not.
        """
        within = Path(self.root.lstrip("/"))
        if not Path(name).is_relative_to(within):
            return None
        try:
            said = os.getxattr(self.point / Path(name).relative_to(within), OPENS, follow_symlinks=False)
        except PermissionError:
            raise
        except OSError:
            return None
        return os.fsdecode(said)


def table() -> list[Mount]:
    """All mounts that this process sees, in the kernel's order: of two at one place the later one counts."""
    with TABLE.open(encoding="utf-8", errors="surrogateescape") as lines:
        return [_parsed(line.rstrip("\n")) for line in lines]


def ours() -> list[Mount]:
    """The mounts of pools."""
    return [mount for mount in table() if mount.fs_type == OURS]


def of_pool(pool_file: Path) -> list[Mount]:
    """The mounts of the pool of that file, each file system once; only those that are trusted and answer."""
    found: dict[int, Mount] = {}
    for mount in ours():
        try:
            if mount.is_trusted and mount.pool_file().samefile(pool_file):
                found.setdefault(mount.point.stat().st_dev, mount)
        except (OSError, StripewiseError):
            continue  # It has ended, or its pool file was moved.
    return list(found.values())


def holding(descriptor: int) -> Mount | None:
    """The mount on which an open file is; `None` where the table does not show it."""
    with Path(f"/proc/self/fdinfo/{descriptor}").open(encoding="ascii") as lines:
        number = next((int(line.split()[1]) for line in lines if line.startswith("mnt_id:")), None)
    return next((mount for mount in table() if mount.id == number), None)


def above(directory: Path) -> Mount | None:
    """The mount of a pool on which a directory is, or the nearest one above it that is there; `None`: it is on none."""
    there = next(place for place in (directory.absolute(), *directory.absolute().parents) if place.is_dir())
    descriptor = os.open(there, os.O_PATH)
    try:
        found = holding(descriptor)
    finally:
        os.close(descriptor)
    return found if found is not None and found.fs_type == OURS else None


def _parsed(line: str) -> Mount:
    """A line is `id parent major:minor root mountpoint options [tags…] - type source super-options`."""
    before, _, after = line.partition(" - ")
    fields = before.split(" ")
    fs_type, source, options = [*after.split(" "), "", ""][:3]
    user = next((option.removeprefix("user_id=") for option in options.split(",") if option.startswith("user_id=")), "")
    return Mount(
        id=int(fields[0]),
        root=_unescaped(fields[3]),
        point=Path(_unescaped(fields[4])),
        fs_type=fs_type,
        source=_unescaped(source),
        user_id=int(user) if user.isdecimal() else None,
    )


def _unescaped(field: str) -> str:
    # The kernel writes space, tab, newline and backslash as octal escapes; the backslash comes last.
    for escape, plain in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        field = field.replace(escape, plain)
    return field
