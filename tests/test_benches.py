"""The frame of the benchmarks; what they measure is run by `make bench`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent


def benches(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benches", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_every_benchmark_is_in_the_program():
    listed = benches("--help").stdout
    names = [path.stem for path in (ROOT / "benches").glob("*.py") if "\nBENCHMARK = " in path.read_text()]
    assert len(names) >= 9
    for name in names:
        assert f"  {name.replace('_', '-')} " in listed


def test_an_unknown_name_is_named():
    done = benches("unifrom")
    assert done.returncode == 2 and "'unifrom'" in done.stderr and "uniform" in done.stderr


def test_the_interval_of_a_median_is_one_of_order_statistics():
    # The median of all is below the second of nine or above the eighth in 4 % of cases, beyond all of five in 6 %.
    script = """
from benches.iorch import interval
assert interval([5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0]) == (2.0, 8.0)
assert interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
assert interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 6.0)
assert interval(range(20)) == (5, 14)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("error", "code", "problem"), [("BenchmarkError", 1, "FAILED: why"), ("MissingError", 0, "not measured: why")]
)
def test_only_what_did_not_run_fails(error, code, problem):
    script = f"""
import sys
from benches import __main__ as program, frame
def run(context):
    yield frame.Figure("missed", 1.0, target=frame.Target(least=2.0))
    yield "a remark"
    raise frame.{error}("why")
program.BENCHMARKS = (frame.Benchmark("probe", "a probe", run),)
sys.argv[1:] = ["--json", "probe"]
sys.exit(program.main())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    (result,) = json.loads(done.stdout)["benchmarks"]
    assert done.returncode == code and result["problem"] == problem
    assert result["remarks"] == ["a remark"]
    assert [figure["met"] for figure in result["figures"]] == [False]


def accuracy(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "benches.accuracy", "--model-only", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_accuracy_draws_its_cells_by_the_seed():
    """With a seed the same cells, without one others, and the seed is said: what was seen can be seen again."""
    page = accuracy("--seed", "11").stdout
    cells = [line for line in page.splitlines() if line.startswith("| ") and ", p = " in line]
    assert cells == [line for line in accuracy("--seed", "11").stdout.splitlines() if line in cells]
    drawn = accuracy()
    seed = drawn.stderr.split()[1]
    assert f"with seed {seed} " in drawn.stdout
    assert cells != [line for line in drawn.stdout.splitlines() if line.startswith("| ") and ", p = " in line]


def test_accuracy_has_all_kinds_of_layouts_and_explains_the_worst():
    script = """
from benches import accuracy
cells = accuracy.draw(accuracy.MEASURED_CELLS, 3)
assert len(cells) >= 12 and {cell.kind for cell in cells} == set(accuracy.KINDS)
assert {cell.op for cell in cells} == {"read", "write"}
assert any(len(cell.layout) > 1 for cell in cells)
one = accuracy.predict(accuracy.sized(cells[0]))
assert one.model > 0 and one.simulated > 0
print(accuracy.why_model(one))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    for cause in ("requests a process", "chance", "latency"):
        assert cause in done.stdout


def test_what_is_advised_from_a_reduced_log_is_faster_when_it_is_applied(tmp_path):
    """The benchmark of advice with one case: a bad layout, flash for a quarter of the data, servers of slow motion."""
    script = """
import sys
from pathlib import Path
from benches import advice
from benches.frame import Context, Figure
case = advice.Case("short", ("ior", "-p", "8", "-r", "256KiB", "-s", "4MiB"), advice.DISK, advice.MIB // 2, slow=4)
directory = Path(sys.argv[1])
context = Context(directory, directory, True, lambda text: None)
(figure,) = advice.compare(case, 0, context)
assert isinstance(figure, Figure) and figure.note.startswith("predicted "), figure
assert figure.value >= advice.BAD_GAIN, figure
log = (directory / "advice-0" / "run.csv").read_text().splitlines()
assert log[0] == "rank,file,api,op,offset,size,start_ns,end_ns" and len(log) > 32
ssd_bytes = 0
for line in (directory / "advice-0" / "changed" / "pool.toml").read_text().splitlines():
    ssd_bytes += line == 'capacity = "512KiB"'
assert ssd_bytes == 1
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


FILL = """
import sys
from pathlib import Path
from benches import filling
filling.TIER_BYTES = 16 << 20
for shape in ("64 KiB", "grown later"):
    filled = filling.fill(Path(sys.argv[1]) / shape.replace(" ", "-"), shape, 2)
    assert (filled.wrong, filled.failed) == (0, 0), (shape, filled.wrong, filled.failed)
    figures = {figure.what.partition(": ")[2]: figure for figure in filling.figures(shape, 2, filled)}
    assert figures["least free share of the metadata tier"].value * filled.tier_bytes == min(filled.watched.free_bytes)
    assert figures["share of the bytes on data servers"].value > 0.6
    assert filled.shares[0] == 1.0
    # What is on its way when the reserve is reached takes a little of it.
    assert min(filled.watched.free_bytes) >= filled.reserve_bytes / 2, (shape, min(filled.watched.free_bytes))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system of a limited size")
def test_a_metadata_tier_is_filled_and_each_byte_is_read_back(tmp_path):
    done = subprocess.run([sys.executable, "-c", FILL, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_byte_that_is_not_as_it_was_written_is_found(tmp_path):
    """And a file that is shorter, unless a write of it failed."""
    script = """
import sys
from pathlib import Path
from benches import filling_client as client
writer = client.Writer(Path(sys.argv[1]), 3)
(writer.directory / "0").mkdir()
client.SHAPES["grown later"](writer, 4)
read = lambda shorter: client._read(writer, "grown later", 4, shorter)
assert (writer.failed, writer.shorter, read({})) == (0, {}, 0)
assert len({writer.path(number).read_bytes() for number in range(4)}) == 4
with writer.path(1).open("r+b") as file:
    file.seek(64000)
    file.write(b"x")
assert read({}) == 1
with writer.path(2).open("r+b") as file:
    file.truncate(5000)
assert (read({}), read({"2": 5000})) == (2, 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_lease_lasts_from_the_request_for_it_to_the_end_of_its_release():
    script = """
from benches.beside import held_ms
def call(thread, time_s, file, kind, byte, end=") = 0"):
    lock = f"{{l_type={kind}, l_whence=SEEK_SET, l_start={byte}, l_len=1}}"
    return f"{thread} {time_s} fcntl({file}, F_OFD_SETLKW, {lock}{end}"
trace = [
    call(7, "10.000", 5, "F_WRLCK", 5),
    call(7, "10.001", 5, "F_UNLCK", 1),
    call(8, "10.002", 6, "F_WRLCK", 5),
    call(7, "10.004", 5, "F_UNLCK", 5),
    call(8, "10.005", 6, "F_UNLCK", 5, end=" <unfinished ...>"),
    "8 10.009 <... fcntl resumed>) = 0",
]
assert [round(of_ms) for of_ms in held_ms("\\n".join(trace))] == [4, 7], held_ms("\\n".join(trace))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
