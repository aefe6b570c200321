"""`stripewise compare`, and the parts of logs that `--file`, `--rank` and `--app` choose."""

import json

import pytest

import stripewise as sw
from stripewise.api.comparison import compare_layouts


def strace(path, *requests):
    """A log of `(seconds, call, path, size, offset, took)` a line, by process 100."""
    lines = [
        f'100 {at:.6f} {call}(3<{file}>, ""..., {size}, {offset}) = {size} <{took:.6f}>\n'
        for at, call, file, size, offset, took in requests
    ]
    path.write_text("".join(lines))
    return path


CSV = """file,op,offset,size,rank,start_ns,end_ns
/data/a.h5,write,0,1000,0,0,500
/data/a.h5,write,1000,1000,1,0,500
/data/b.h5,write,0,500,1,500,1000
/data/log,write,0,7,0,1000,1100
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text(CSV)
    return path


@pytest.fixture
def runs(tmp_path):
    mib = 1 << 20
    before = strace(
        tmp_path / "before.strace",
        *((1 + n, "pwrite64", f"/data/run1/out.{n:04}", mib, 0, 0.5) for n in range(4)),
        (9, "pread64", "/data/run1/in", mib, 0, 0.1),
    )
    after = strace(
        tmp_path / "after.strace",
        *((1 + n, "pwrite64", f"/scratch/new/out.{n:04}", mib, 0, 0.25) for n in range(4)),
        (9, "pread64", "/scratch/new/in", mib, 0, 0.1),
        (12, "pread64", "/scratch/new/more", mib, 0, 0.9),
    )
    return before, after


def test_an_excerpt_is_the_log_of_these_files_and_ranks_alone(log, stripewise):
    def shown(*options):
        return json.loads(stripewise("show", log, *options, "--json").stdout)

    moved = lambda document: {file["path"]: file["writes"]["bytes"] for file in document["files"]}  # noqa: E731
    assert moved(shown()) == {"/data/a.h5": 2000, "/data/b.h5": 500, "/data/log": 7}
    assert moved(shown("--file", "*.h5")) == {"/data/a.h5": 2000, "/data/b.h5": 500}
    assert moved(shown("--file", "b.*")) == {"/data/b.h5": 500}
    assert moved(shown("--file", "a.h5", "--file", "/data/log")) == {"/data/a.h5": 2000, "/data/log": 7}
    of_rank = shown("--rank", 1)
    assert moved(of_rank) == {"/data/a.h5": 1000, "/data/b.h5": 500}
    assert [process["rank"] for process in of_rank["processes"]] == [1]
    assert any("rank 1 alone" in note for note in of_rank["about"]["notes"])
    assert moved(shown("--rank", 1, "--file", "b.h5")) == {"/data/b.h5": 500}
    program = sw.read(log).programs[0]
    assert moved(shown("--app", program[:2] + "*")) == moved(shown())


def test_what_fits_nothing_is_named_with_what_there_is(log, stripewise):
    for options, said in (
        (["--file", "c.h5"], "no file 'c.h5'; it has /data/a.h5, /data/b.h5, /data/log"),
        (["--rank", "7"], "no requests of rank 7; it has those of 0, 1"),
        (["--app", "lammps"], "no program 'lammps'"),
        (["--rank", "0", "--file", "b.h5"], "no requests of files 'b.h5', rank 0 together"),
    ):
        refused = stripewise("show", log, *options, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert said in refused.stderr, refused.stderr
    layout = log.with_name("l.layout")
    layout.write_text('version = 1\npool = "p"\n')
    refused = stripewise("show", layout, "--rank", 0, check=False)
    assert "choose from traces and logs" in refused.stderr
    refused = stripewise("show", log, "--rank", 0, "--dask", "tcp://127.0.0.1:1", check=False)
    assert "omit --dask" in refused.stderr


@pytest.mark.parametrize("command", ["advise", "report"])
def test_advice_and_report_are_of_the_chosen_part(command, log, stripewise, tmp_path):
    cluster = tmp_path / "c.toml"
    cluster.write_text('name = "c"\n[[tier]]\nname = "hdd"\nservers = 4\npreset = "hdd-7200"\n')
    if command == "advise":
        document = json.loads(
            stripewise("advise", log, "--cluster", cluster, "--file", "b.h5", "--rank", 1, "--json").stdout
        )
        assert [row["path"] for row in document["files"]] == ["b.h5"]
        assert document["total"]["bytes"] == 500
        return
    stripewise("report", log, "--cluster", cluster, "--file", "b.h5", "-o", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "/data/b.h5" in page and "/data/a.h5" not in page
    assert "This is of files &#39;b.h5&#39; alone." in page
    # The verdict is first, what the log lacks last.
    places = [page.index(f'<section id="{name}"') for name in ("overview", "advice", "files", "lacks")]
    assert places == sorted(places)


def test_what_a_log_lacks_comes_after_the_results_and_before_an_error(log, stripewise):
    joined = stripewise("show", log, prefix=["sh", "-c", 'exec "$@" 2>&1', "sh"]).stdout
    assert joined.index("/data/a.h5") < joined.index("is a log of CSV")
    failed = stripewise("advise", log, "--planner", "none", "--cluster", log, check=False)
    lines = failed.stderr.splitlines()
    assert f"{log} is a log of CSV:" in lines[:-1] and lines[-1].startswith("error: ")


def test_two_runs_are_compared_by_their_files(runs, stripewise):
    document = json.loads(stripewise("compare", *runs, "--json").stdout)
    a, b = document["runs"]
    assert (a["writes"]["bytes"], b["reads"]["bytes"], a["files"], b["files"]) == (4 << 20, 2 << 20, 5, 6)
    assert a["busy_s"] == pytest.approx(2.1) and b["busy_s"] == pytest.approx(2.0)
    assert document["ratio"]["bytes_per_s"] == pytest.approx((6 / 2.0) / (5 / 2.1))
    files = {row["path"]: (row["a"], row["b"]) for row in document["files"]}
    # The four files of each run, in directories of other names, are one row: their time differs most.
    assert [row["path"] for row in document["files"]][:2] == ["/data/run1/out.*", "/scratch/new/more"]
    first, second = files["/data/run1/out.*"]
    assert (first["files"], second["files"], second["writes"]["bytes"]) == (4, 4, 4 << 20)
    assert second["writes"]["rate_bytes_per_s"] == pytest.approx(2 * first["writes"]["rate_bytes_per_s"])
    assert files["/scratch/new/more"][0] is None
    shown = stripewise("compare", *runs).stdout
    assert shown.startswith("B is 1.26x as fast as A while requests are in flight: 2.4 MiB/s become 3.0")
    assert "1.20x the bytes in 0.95x the time" in shown
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("/data/run1/out.*")] == ["2.00x"]
    same = stripewise("compare", runs[0], runs[0]).stdout
    assert same.startswith("B is as fast as A") and "the same bytes in 1.00x the time" in same
    # What is the same has no ratio beside it.
    assert all(not line.endswith("x") for line in same.splitlines()[2:])


def test_runs_of_which_one_reads_and_one_writes_are_not_called_faster(stripewise, tmp_path):
    runs = [
        strace(tmp_path / f"{call}.strace", (1, call, "/data/f", 1 << 20, 0, took))
        for call, took in (("pwrite64", 0.5), ("pread64", 0.1))
    ]
    shown = stripewise("compare", *runs).stdout
    assert shown.startswith(
        "the two runs do different work, so neither is called faster: A reads 0 B and writes 1.0 MiB"
    )
    # What a run did not do has no figures.
    rates = [line.split() for line in shown.splitlines() if line.startswith("  MiB/s")]
    assert rates == [["MiB/s", "-", "10.0"], ["MiB/s", "2.0", "-"]]


def test_what_two_logs_lack_is_said_once(stripewise, runs):
    said = stripewise("compare", *runs).stderr
    assert said.splitlines()[0] == f"{runs[0]} and {runs[1]} are each a log of strace:"
    assert said.count("it names no ranks") == 1


def test_a_run_without_times_is_compared_by_its_bytes_alone(runs, stripewise, tmp_path):
    untimed = tmp_path / "u.csv"
    untimed.write_text("file,op,offset,size\n/data/run1/in,read,0,4096\n")
    shown = stripewise("compare", runs[0], untimed).stdout
    assert shown.startswith(f"which is faster is not known: no bytes or no times are in {untimed}")
    document = sw.compare(sw.read(runs[0]), sw.read(untimed)).document
    assert document["runs"][1]["busy_s"] is None and document["ratio"]["bytes_per_s"] is None
    assert document["runs"][1]["reads"]["bytes"] == 4096


def layout(path, *files):
    region = '[[file]]\npath = "{}"\n[[file.region]]\noffset = "0"\nround = {}\n'
    rounds = "".join(region.format(name, json.dumps(stripes)) for name, stripes in files)
    path.write_text(f'version = 1\npool = "c"\n{rounds}')
    return path


def test_two_layouts_are_compared_and_simulated(stripewise, tmp_path, runs):
    cluster = tmp_path / "c.toml"
    cluster.write_text('name = "c"\n[[tier]]\nname = "hdd"\nservers = 4\npreset = "hdd-7200"\n')
    a = layout(tmp_path / "a.layout", ("in", ["hdd.0:1MiB"]), ("log", ["hdd.0:1MiB"]), ("out.*", ["hdd.0:1MiB"]))
    b = layout(tmp_path / "b.layout", ("in", ["hdd.0:1MiB"]), ("out.*", ["hdd.0-3:64KiB"]))
    shown = stripewise("compare", a, b).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["file", "log", "out.*", "1"]
    assert shown[-1] == "1 more paths have the same layout in both"
    assert "- (not named)" in shown[1]
    document = compare_layouts(a, b, trace=sw.read(runs[0]), cluster=cluster)
    simulated = document["simulated"]
    assert simulated["ratio"] == pytest.approx(simulated["b"]["mean"] / simulated["a"]["mean"])
    assert simulated["ratio"] > 1
    told = stripewise("compare", a, b, "--trace", runs[0], "--cluster", cluster).stdout
    assert f"\nB is {simulated['ratio']:.2f}x as fast as A, replayed on servers as described: " in told
    assert told.splitlines()[:4] == document["heading"] and f"\nB, {document['then'][1]}\n" in told
    assert "both have the same layouts for 3 paths" in stripewise("compare", a, a).stdout


def test_what_cannot_be_compared_is_said(stripewise, tmp_path, runs):
    a = layout(tmp_path / "a.layout", ("in", ["hdd.0:1MiB"]))
    for arguments, said in (
        ([runs[0], a], f"{a} is a layout file"),
        ([*runs, "--trace", runs[0]], "these are two runs"),
        ([a, a, "--cluster", tmp_path / "c.toml"], "needs a trace"),
        ([a, a, "--rank", "0"], "name one with --trace"),
    ):
        refused = stripewise("compare", *arguments, check=False)
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr


def test_files_named_alike_are_a_row_with_the_numbers_that_they_share(tmp_path, stripewise):
    log = tmp_path / "many.csv"
    rows = [f"/data/job17/out.{number:03}.h5,write,0,{100 + number}" for number in range(40)]
    log.write_text("file,op,offset,size\n" + "\n".join([*rows, "/data/job17/big,write,0,100000"]) + "\n")
    groups = sw.read(log).groups()
    assert [(group["path"], group["files"], group["writes"]["bytes"]) for group in groups] == [
        ("/data/job17/big", 1, 100_000),
        ("/data/job17/out.*.h5", 40, 4780),
    ]
    assert groups[1]["pattern"] == "/data/job*/out.*.h*"
    # A file that moves more than 16 times as much as another is shown by itself, whatever it is called.
    log.write_text(log.read_text() + "/data/job17/out.777.h5,write,0,50000\n/data/job17/out.778.h5,read,0,90\n")
    trace = sw.read(log)
    paths = [(group["path"], group["files"]) for group in trace.groups(trace.summary()["files"])]
    assert paths == [
        ("/data/job17/big", 1),
        ("/data/job17/out.777.h5", 1),
        ("/data/job17/out.*.h5", 40),
        ("/data/job17/out.778.h5", 1),
    ]
    assert [group["files"] for group in trace.groups()] == [1, 42]
    log.write_text("\n".join(log.read_text().splitlines()[:-2]) + "\n")
    for command in ("show", "signature"):
        shown = [line.split() for line in stripewise(command, log).stdout.splitlines() if line.startswith("/data")]
        assert [row[0].rstrip(":") for row in shown][:2] == ["/data/job17/big", "/data/job17/out.*.h5"]
        assert shown[1][1] == "(40)"
        every = stripewise(command, log, "--all").stdout
        assert all(f"out.{number:03}.h5" in every for number in range(40)) and "*" not in every
