"""How full the servers of a pool are, and whether they are there."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stripewise.pool import Pool, Server

MARKER = ".stripewise"
"""A server's directory has it; a directory without it is an unmounted disk or not this pool's."""


@dataclass(frozen=True)
class Usage:
    """One server's state."""

    used_bytes: int
    """Allocated by datafiles."""
    free_bytes: int
    """That its file system has left for this user, or that the tier's capacity leaves, whichever is less."""
    error: str | None
    """Why the server cannot be used."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def of_pool(pool: Pool) -> dict[str, Usage]:
    """Usage by name of server. Looks at every datafile: O(files of the pool)."""
    servers = {server.name: of_server(server, tier.capacity_bytes) for tier in pool.tiers for server in tier.servers}
    return {**servers, pool.meta.name: of_namespace(pool.namespace)}


def of_namespace(namespace: Path) -> Usage:
    """Usage of the metadata tier: what the inodes of files hold themselves."""
    tree = namespace / "tree"
    if not tree.is_dir():
        return Usage(0, 0, "directory missing")
    if not os.access(namespace, os.W_OK):
        return Usage(0, 0, "read-only")
    used = sum(_allocated(Path(directory, name)) for directory, _, names in os.walk(tree) for name in names)
    return Usage(used, _free(namespace), None)


def of_server(server: Server, capacity_bytes: int | None) -> Usage:
    """Usage of one server."""
    if not server.path.is_dir():
        return Usage(0, 0, "directory missing")
    if not (server.path / MARKER).is_file():
        return Usage(0, 0, "not this pool's: no marker, is its disk mounted?")
    if not os.access(server.path, os.W_OK):
        return Usage(0, 0, "read-only")
    used = sum(_allocated(file) for shelf in server.path.iterdir() if shelf.is_dir() for file in shelf.iterdir())
    free = _free(server.path)
    if capacity_bytes is not None:
        free = min(free, max(0, capacity_bytes - used))
    return Usage(used, free, None)


def free_on_disk(server: Server) -> int:
    """What this user can write on a server's file system, whatever the tier's capacity is; 0 where it is away."""
    try:
        return _free(server.path)
    except OSError:
        return 0


def _free(directory: Path) -> int:
    system = os.statvfs(directory)
    return system.f_bavail * system.f_frsize


def _allocated(file: Path) -> int:
    try:
        return file.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0  # removed since it was listed
