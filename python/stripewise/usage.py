"""How full the servers of a pool are, and whether they are there."""

from dataclasses import asdict, dataclass
from typing import Any

from stripewise import _native
from stripewise.pool import Pool


@dataclass(frozen=True)
class Usage:
    """One server's state."""

    used_bytes: int
    """Allocated by datafiles; on the metadata tier by the inodes of files."""
    free_bytes: int
    """That its file system has left for this user, or that the tier's capacity leaves, whichever is less."""
    error: str | None
    """Why the server cannot be used."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def of_pool(pool: Pool) -> dict[str, Usage]:
    """Usage by name of server. Looks at every datafile: O(files of the pool)."""
    return {name: Usage(*state) for name, state in _native.pool_usage(str(pool.file))}
