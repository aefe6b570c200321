"""`stripewise export --to cephfs` against a real CephFS, whose metadata server judges every attribute.

Its tests are there where STRIPEWISE_TEST_CEPHFS names a directory on a CephFS with the data pools `hdd` and `ssd`.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import PATIENCE_S
from native_readers import of_cephfs
from stripewise.exporters import RefusedError, cephfs
from stripewise.exporters.shell import command
from test_export import document_of, documents, exported

MOUNT = os.environ.get("STRIPEWISE_TEST_CEPHFS")
UNHURRIED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SLOW = settings(max_examples=40, suppress_health_check=UNHURRIED)


def layout_of(path, kind="file"):
    """What the metadata server says."""
    asked = ["getfattr", "--only-values", "-n", f"ceph.{kind}.layout", path]
    text = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    values = dict(pair.split("=") for pair in text.split())
    pool = values.pop("pool")
    return cephfs.FileLayout(**{key: int(value) for key, value in values.items()}, pool=pool)


def run(script, cwd):
    return subprocess.run(["sh"], input=script, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S)


if MOUNT is not None:

    @pytest.fixture
    def directory():
        with tempfile.TemporaryDirectory(dir=MOUNT) as made:
            yield Path(made)

    @given(
        document=documents(st.sampled_from(["a", "x y'z", "-dash", "line\nbreak", "sub/*.h5"])), existing=st.booleans()
    )
    @SLOW
    def test_the_script_sets_the_layouts(directory, document, existing):
        with tempfile.TemporaryDirectory(dir=directory) as made:
            work = Path(made)
            (work / "sub").mkdir()
            done = exported(document, "cephfs", existing=existing)
            content = os.urandom(300_001)
            if existing:
                for file in done.files:
                    if not file.is_directory:
                        (work / file.path).write_bytes(content)
            ran = run(done.script(), work)
            assert ran.returncode == 0, ran.stderr
            for file in done.files:
                if file.refused is not None:
                    continue
                if file.is_directory:
                    assert layout_of(work / file.path, "dir") == file.native
                    (work / file.path / "new.h5").write_bytes(content)
                    assert layout_of(work / file.path / "new.h5") == file.native
                else:
                    assert layout_of(work / file.path) == file.native
                    assert (work / file.path).read_bytes() == (content if existing else b"")
                    assert f"stripe_unit={file.native.stripe_unit} " in ran.stdout
            assert not list(work.rglob(".stripewise-new*"))

    @given(
        st.lists(
            st.one_of(
                st.tuples(
                    st.sampled_from(["stripe_unit", "object_size"]),
                    st.one_of(st.integers(0, 300).map(lambda n: n << 16), st.integers(0, 1 << 33)).map(str),
                ),
                st.tuples(st.just("stripe_count"), st.integers(0, 1 << 33).map(str)),
                st.tuples(st.just("pool"), st.sampled_from(["hdd", "ssd"])),
            ),
            min_size=1,
            max_size=5,
        )
    )
    @SLOW
    def test_the_reader_judges_every_step_as_the_metadata_server_does(directory, steps):
        """All that we call valid it takes; all that we refuse it refuses, but objects too large to be written."""
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            taken = []
            for key, value in steps:
                tried = command("setfattr", "-n", f"ceph.file.layout.{key}", "-v", value, file.name)
                is_set = subprocess.run(tried.arguments, capture_output=True, timeout=PATIENCE_S).returncode == 0
                try:
                    of_cephfs([*taken, tried])
                except RefusedError as refused:
                    if "can be written" in str(refused):
                        return
                    assert not is_set, (steps, refused)
                else:
                    assert is_set, steps
                    taken.append(tried)
            read = of_cephfs(taken)
            assert layout_of(file.name) == cephfs.FileLayout(
                read.stripe_unit, read.stripe_count, read.object_size, read.pool or "hdd"
            )

    def test_the_largest_object_can_be_written_and_a_larger_one_cannot(directory):
        document = document_of("large", (0, [("hdd.0", 1 << 40)]))
        done = exported(document, "cephfs")
        assert done.files[0].native.object_size == cephfs.MOST_OBJECT
        assert run(done.script(), directory).returncode == 0
        end = cephfs.MOST_OBJECT - 4096
        write = f"dd if=/dev/zero of=large bs=4096 count=1 seek={end // 4096} conv=fsync,notrunc"
        assert run(write, directory).returncode == 0
        beyond = cephfs.MOST_OBJECT * 2
        script = done.script().replace(str(cephfs.MOST_OBJECT), str(beyond)).replace("large", "beyond")
        assert run(script, directory).returncode == 0
        failed = run(
            f"dd if=/dev/zero of=beyond bs=4096 count=1 seek={(beyond - 4096) // 4096} conv=fsync,notrunc", directory
        )
        assert failed.returncode != 0
        assert re.search("File too large", failed.stderr)

    def test_a_file_that_has_bytes_stops_the_script(directory):
        (directory / "f").write_bytes(b"here")
        done = exported(document_of("f", (0, [("ssd.0", 65536)])), "cephfs")
        failed = run(done.script(), directory)
        assert failed.returncode != 0
        assert "not empty" in failed.stderr
        assert (directory / "f").read_bytes() == b"here"
        assert of_cephfs(done.commands) == done.files[0].native
