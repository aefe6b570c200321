"""`make demo`: makes an emulated pool, and optimizes a real MPI program on it.

python -m stripewise.demo DIR
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from stripewise import launch
from stripewise.demo import program

RANKS = 16
FILE_MIB = 512
SSD_SHARE = 0.4
"""Of the file's bytes that the two SSDs may hold together: with room for all, there would be nothing to plan."""


def main() -> None:
    """Runs the demonstration; the exit code is that of `stripewise optimize`."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m stripewise.demo DIR")
    base = Path(sys.argv[1]).absolute()
    mount = base / "pool" / "mount"
    if launch.is_mounted(mount):
        raise SystemExit(f"{mount} is mounted; `stripewise umount {mount}` first")
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    scripts = Path(sys.executable).parent
    os.environ["PATH"] = f"{scripts}:{os.environ['PATH']}"
    stripewise = [sys.executable, "-m", "stripewise"]

    per_ssd = int(FILE_MIB * SSD_SHARE / 2)
    servers = ["--emulate", "--hdd", "6", "--ssd", "2", "--capacity", f"ssd={per_ssd}MiB"]
    subprocess.run([*stripewise, "pool", "init", str(base / "pool"), "--name", "demo", *servers], check=True)
    pool_file = base / "pool" / "pool.toml"
    subprocess.run([*stripewise, "pool", "show", str(pool_file)], check=True)
    print(
        f"\n{RANKS} MPI processes write and read one file of {FILE_MIB} MiB in {len(program.PARTS)} ways.", flush=True
    )
    command = ["mpiexec", "-n", str(RANKS), sys.executable, str(Path(program.__file__)), str(mount / "shared.dat")]
    optimize = [*stripewise, "optimize", "--pool", str(pool_file), "--directory", str(base / "optimize")]
    raise SystemExit(subprocess.call([*optimize, "--", *command, str(FILE_MIB)]))


if __name__ == "__main__":
    main()
