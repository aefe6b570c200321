"""Files that a user names for what a command writes: whole, or not at all."""

import os
import stat
import tempfile
from pathlib import Path

from stripewise._native import StripewiseError


def write(content: bytes, output: Path, mode: int = 0o666) -> None:
    """Writes `content` under another name and renames it: there is never half of it, and a full disk leaves what was.

    Its mode is `mode` without what the umask takes. Behind a symbolic link its target is written. What is no regular
    file, as `/dev/stdout`, is written as it is.
    """
    if _is_special(output):
        with output.open("wb", buffering=0) as special:
            special.write(content)
        return
    target = Path(os.path.realpath(output))
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(mode & ~mask)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_regular(output: Path) -> None:
    """Raises `StripewiseError` where `output` is there and no regular file: for what needs a file of its own."""
    if _is_special(output):
        raise StripewiseError(f"cannot write {output}: it is there and no regular file; name another file")


def _is_special(path: Path) -> bool:
    """Whether it is a device, a FIFO, a socket: to rename a file over it would take it away."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
