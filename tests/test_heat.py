"""Heat as the installed command keeps and shows it."""

import json
import shutil
import subprocess

import pytest

import stripewise
from stripewise.api import heat

MIB = 1 << 20


@pytest.fixture
def warm(pool):
    """A pool that keeps heat in blocks of 64 KiB, and halves it once a year."""
    pool.file.write_text(f'{pool.file.read_text()}\n[heat]\nperiod = "31000000s"\n')
    return pool


def heat_of(pool, path):
    return json.loads(pool.stripewise("heat", path, "--pool", pool.file, "--json").stdout)


def namespace_of(pool):
    """Where its small files are, once it was mounted."""
    (found,) = pool.base.glob("disks/*/.*-names")
    return found


READS = """
import os, sys
file = os.open(f"{sys.argv[1]}/f", os.O_RDONLY)
for _ in range(50):
    os.pread(file, 4096, 3 << 20)
os.pread(file, 4096, 0)
"""


@pytest.mark.parametrize("preload", [True, False])
def test_what_is_read_gets_hot_whoever_reads_it(warm, preload):
    """Under the preload too: the mount has the program send its requests there."""
    warm.python(f"import sys; open(f'{{sys.argv[1]}}/f', 'wb').write(bytes({4 * MIB}))", preload=preload)
    (written,) = heat_of(warm, "f")["files"]
    assert written["size_bytes"] == 4 * MIB and len(written["blocks"]) == 64
    warm.python(READS, preload=preload)
    found = heat_of(warm, "f")
    (file,) = found["files"]
    grown = {block: cost - dict(map(tuple, written["blocks"]))[block] for block, cost in file["blocks"]}
    assert {block for block, cost in grown.items() if cost > 0} == {0, 48}
    assert grown[48] == 50 * grown[0]
    assert (found["block_bytes"], found["missed"]) == (65536, 0)
    shown = warm.stripewise("heat", ".", "--pool", warm.file).stdout
    drawn = next(line for line in shown.splitlines() if line.startswith("f "))
    assert drawn.count("█") == 1


def test_a_path_at_which_nothing_is_has_no_heat_and_is_named(warm):
    warm.run("sh", "-c", f"mkdir {warm.mount}/empty; touch {warm.mount}/cold")
    for path in (".", "empty", "cold"):
        assert heat_of(warm, path)["files"] == []
    failed = warm.stripewise("heat", "gone", "--pool", warm.file, check=False)
    assert failed.returncode == 1 and "gone" in failed.stderr


def test_the_heat_of_what_a_link_leads_to_is_shown(warm):
    warm.run("sh", "-c", f"cd {warm.mount}; mkdir d; echo 1 > d/f; ln -s d/f file; ln -s d directory; ln -s /etc out")
    for link in ("file", "directory"):
        assert [of["path"] for of in heat_of(warm, link)["files"]] == ["d/f"]
    failed = warm.stripewise("heat", "out", "--pool", warm.file, check=False)
    assert failed.returncode == 1 and "not in pool" in failed.stderr


@pytest.mark.parametrize("size_bytes", [1, 3, 10, 59, 61, 4097])
def test_the_heat_of_a_small_file_is_drawn_to_its_end(size_bytes):
    parts = heat.columns({"path": "f", "size_bytes": size_bytes, "cost_us": 7, "blocks": [(0, 7)]}, 65536, 60)
    assert parts == pytest.approx([7 / size_bytes] * 60)


def test_a_file_that_is_gone_or_shorter_has_no_heat_there(warm):
    warm.python(f"import sys; open(f'{{sys.argv[1]}}/f', 'wb').write(bytes({MIB}))")
    warm.python("import os, sys; os.truncate(f'{sys.argv[1]}/f', 100_000)")
    (file,) = heat_of(warm, ".")["files"]
    assert [block for block, _ in file["blocks"]] == [0, 1]
    warm.python("import os, sys; os.remove(f'{sys.argv[1]}/f')")
    assert heat_of(warm, ".")["files"] == []
    assert "no heat" in warm.stripewise("heat", ".", "--pool", warm.file).stdout
    assert warm.stripewise("fsck", warm.file).returncode == 0


def test_a_path_at_which_nothing_is_is_an_error_and_a_link_shows_what_it_leads_to(warm):
    warm.python(f"import os, sys; os.chdir(sys.argv[1]); open('f', 'wb').write(bytes({MIB})); os.symlink('f', 'link')")
    absent = warm.stripewise("heat", "absent", "--pool", warm.file, check=False)
    assert absent.returncode == 1 and "there is no 'absent'" in absent.stderr and not absent.stdout
    assert [file["path"] for file in heat_of(warm, "link")["files"]] == ["f"]


def test_a_restored_file_has_no_heat_of_before(warm):
    """It has its handle again, but is another inode: the pool is taken over, and its heat begins anew."""
    warm.python(f"import sys; open(f'{{sys.argv[1]}}/f', 'wb').write(bytes({4 * MIB}))")
    warm.python(READS)
    namespace = namespace_of(warm)
    shutil.copy(namespace / "heat", namespace / "heat.node-2")
    (inode,) = namespace.rglob("f")
    assert len(heat_of(warm, ".")["files"][0]["blocks"]) == 64
    backup = inode.with_name("backup")
    subprocess.run(["cp", "--archive", inode, backup], check=True)
    backup.rename(inode)
    assert heat_of(warm, ".")["files"] == []
    taken = warm.stripewise("fsck", warm.file, "--rebind", check=False)
    assert taken.returncode == 1 and "mended" in taken.stdout
    assert warm.stripewise("fsck", warm.file).returncode == 0
    assert heat_of(warm, ".")["files"] == []
    warm.python("import os, sys; os.pread(os.open(f'{sys.argv[1]}/f', os.O_RDONLY), 4096, 3 << 20)")
    (read,) = heat_of(warm, ".")["files"]
    assert [block for block, _ in read["blocks"]] == [48]


def test_moves_make_nothing_hot(warm):
    warm.python(f"import sys; open(f'{{sys.argv[1]}}/f', 'wb').write(bytes({MIB}))")
    before = heat_of(warm, "f")
    warm.apply(
        'version = 1\npool = "test"\n[[file]]\npath = "f"\n[[file.region]]\noffset = "0"\nround = ["ssd.0:1MiB"]\n'
    )
    assert heat_of(warm, "f") == before, "and the heat stays with the file"


def test_what_python_reads_without_a_mount_gets_hot(warm):
    files = stripewise.open_pool(warm.file)
    with files.open("f", "wb") as file:
        file.write(bytes(MIB))
    (written,) = heat_of(warm, "f")["files"]
    with files.open("f", "rb", buffering=0) as file:
        for _ in range(20):
            file.seek(5 << 16)
            assert len(file.read(4096)) == 4096
    (read,) = heat_of(warm, "f")["files"]
    grown = {block: cost - dict(map(tuple, written["blocks"]))[block] for block, cost in read["blocks"]}
    assert {block for block, cost in grown.items() if cost > 0} == {5}


def test_heat_that_cannot_be_kept_keeps_python_from_no_file(warm):
    warm.python("pass")
    heat = namespace_of(warm) / "heat"
    heat.unlink()
    heat.mkdir()
    files = stripewise.open_pool(warm.file)
    with files.open("f", "wb") as file:
        file.write(b"bytes")
    with files.open("f", "rb") as file:
        assert file.read() == b"bytes"


def test_the_heat_of_all_machines_is_added_up(warm):
    warm.python(f"import sys; open(f'{{sys.argv[1]}}/f', 'wb').write(bytes({MIB}))")
    (alone,) = heat_of(warm, ".")["files"]
    heat = namespace_of(warm) / "heat"
    shutil.copy(heat, heat.with_name("heat.node-2"))
    shutil.copy(heat, heat.with_name("heat.node-3"))
    heat.with_name("heat.broken").write_bytes(b"no heat")
    (together,) = heat_of(warm, ".")["files"]
    assert together["blocks"] == [[block, 3 * cost] for block, cost in alone["blocks"]]
    assert warm.stripewise("fsck", warm.file).returncode == 0


def test_a_pool_without_heat_and_wrong_tables_are_named(pool):
    done = pool.stripewise("heat", ".", "--pool", pool.file, check=False)
    assert done.returncode == 1 and "keeps no heat: write a table [heat]" in " ".join(done.stderr.split())
    text = pool.file.read_text()
    for table, said in (
        ('block = "5000B"', "power of two"),
        ('period = "0s"', "between 1s and a year"),
        ("x = 1", "x"),
    ):
        pool.file.write_text(f"{text}\n[heat]\n{table}\n")
        failed = pool.stripewise("pool", "show", pool.file, check=False)
        assert failed.returncode == 1 and said in failed.stderr
