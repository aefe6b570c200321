"""The frame of the benchmarks; what they measure is run by `make bench`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def benches(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benches", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
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
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    (result,) = json.loads(done.stdout)["benchmarks"]
    assert done.returncode == code and result["problem"] == problem
    assert result["remarks"] == ["a remark"]
    assert [figure["met"] for figure in result["figures"]] == [False]
