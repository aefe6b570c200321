"""`stripewise export --to hints`: what ROMIO makes of the file, and what a log adds to it."""

import json
import re
import subprocess
import sys

import pytest

LAYOUT = """
version = 1
pool = "scratch"
[[file]]
path = "out.dat"
[[file.region]]
offset = "0"
round = ["hdd.0:4MiB", "hdd.1:4MiB", "hdd.2:4MiB"]
"""

PROGRAM = """
import json, sys
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
info = file.Get_info()
if MPI.COMM_WORLD.Get_rank() == 0:
    print(json.dumps({name: info.Get(name) for name in info}))
file.Close()
"""


@pytest.fixture
def layout(tmp_path):
    file = tmp_path / "new.layout"
    file.write_text(LAYOUT)
    return file


def collective(path, name):
    """64 ranks that write 512 MiB of a file together, through rank 0, which first reads what lies between."""
    rows = []
    for call in range(8):
        start = call * 10**9
        for rank in range(64):
            offset = (call * 64 + rank) << 20
            rows.append(f"{name},write,MPI-IO,{rank},{offset},{1 << 20},{start},{start + 9 * 10**8},4")
        for op, at in (("read", 0), ("write", 4 * 10**8)):
            begin = start + at
            rows.append(f"{name},{op},POSIX,0,{call << 26},{1 << 26},{begin},{begin + 3 * 10**8},0")
    path.write_text("file,op,api,rank,offset,size,start_ns,end_ns,flags\n" + "\n".join(rows) + "\n")
    return path


def test_romio_takes_the_file(stripewise, layout, tmp_path):
    out, log = tmp_path / "io.hints", collective(tmp_path / "run.csv", "/scratch/me/out.dat")
    stripewise("export", layout, "--to", "hints", "--trace", log, "--root", "/scratch/me", "-o", out)
    program = tmp_path / "opens.py"
    program.write_text(PROGRAM)
    run = ["mpiexec", "-n", "2", "env", f"ROMIO_HINTS={out}", sys.executable, program, tmp_path / "file"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    taken = json.loads(done.stdout)
    written = dict(line.split() for line in out.read_text().splitlines() if not line.startswith("#"))
    assert written["romio_ds_write"] == "disable" and written["striping_factor"] == "3"
    # Of the two ranks on this node no third one can be taken.
    assert {name: taken.get(name) for name in written} == {**written, "cb_nodes": taken["cb_nodes"]}
    assert json.loads(stripewise("export", layout, "--to", "hints", "--json").stdout)["hints"]["cb_nodes"] == "3"


def test_a_log_says_what_the_program_needs(stripewise, layout, tmp_path):
    log = collective(tmp_path / "run.csv", "/scratch/me/out.dat")
    document = json.loads(
        stripewise("export", layout, "--to", "hints", "--trace", log, "--root", "/scratch/me", "--json").stdout
    )
    (file,) = document["files"]
    assert file["path"] == "/scratch/me/out.dat"
    # The layout's stripes, and the log's data sieving.
    assert file["hints"]["striping_factor"] == "3" and file["hints"]["romio_ds_write"] == "disable"
    assert document["cray"].startswith("/scratch/me/out.dat:striping_factor=3:")
    text = stripewise("export", layout, "--to", "hints", "--trace", log, "--root", "/scratch/me").stdout
    assert "romio_ds_write disable\n" in text and "export MPICH_MPIIO_HINTS=/scratch/me/out.dat:" in text


def test_aggregators_are_seen_for_what_they_are(stripewise, tmp_path):
    log = collective(tmp_path / "run.csv", "/scratch/me/out.dat")
    cluster = tmp_path / "c.toml"
    cluster.write_text('name = "c"\n[[tier]]\nname = "hdd"\nservers = 6\npreset = "hdd-7200"\n')
    document = json.loads(stripewise("advise", log, "--cluster", cluster, "--json").stdout)
    found = {finding["kind"]: finding for finding in document["files"][0]["findings"]}
    assert "read-modify-write" in found and "mpi-io" in found
    assert not {"rank-imbalance", "one-rank", "collective-off"} & set(found)
    assert "64 ranks" not in found["mpi-io"]["words"] and "by 1 rank" in found["mpi-io"]["words"]


def test_no_path_is_a_command_or_another_hint(stripewise, tmp_path):
    layout = tmp_path / "new.layout"
    layout.write_text(LAYOUT.replace("out.dat", "it's $(touch gone); b.dat"))
    text = stripewise("export", layout, "--to", "hints").stdout
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z_]+ \S+", line) for line in lines)
    layout.write_text(LAYOUT.replace("out.dat", "a:cb_nodes=1,b"))
    assert json.loads(stripewise("export", layout, "--to", "hints", "--json").stdout)["cray"] == ""
    layout.write_text('version = 1\npool = "scratch"\n')
    failed = stripewise("export", layout, "--to", "hints", check=False)
    assert failed.returncode == 1 and "no hints to give" in failed.stderr
