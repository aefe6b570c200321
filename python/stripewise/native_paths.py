"""Where the compiled programs and the preload library of this installation are."""

from pathlib import Path

from stripewise._native import StripewiseError

_PACKAGE = Path(__file__).resolve().parent


def mount_program() -> Path:
    """Path of the FUSE file system, `stripewise-mount`."""
    return _existing(_PACKAGE / "_bin" / "stripewise-mount")


def bench_program() -> Path:
    """Path of the workload generator, `stripewise-bench`."""
    return _existing(_PACKAGE / "_bin" / "stripewise-bench")


def agent_program() -> Path:
    """Path of the agent of a node, `stripewise-agent`, which is the orchestrator that agents join, too."""
    return _existing(_PACKAGE / "_bin" / "stripewise-agent")


def preload_library() -> Path:
    """Path of the library for `LD_PRELOAD` that records requests and bypasses the mount."""
    # The suffix (`.abi3.so`, `.cpython-311-….so`) is the build tool's choice.
    found = sorted((_PACKAGE / "_lib").glob("libstripewise_preload*.so"))
    return found[0] if found else _existing(_PACKAGE / "_lib" / "libstripewise_preload.so")


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise StripewiseError(f"{path} is missing from this installation; install stripewise again (pip install .)")
    return path
