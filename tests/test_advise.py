"""`stripewise advise`: valid advice or a clear error on any log, and what it advises can be applied."""

import json
import shlex
import sys
from pathlib import Path

import darshan
import pytest

import stripewise as sw
from stripewise.exporters import pricing
from stripewise.exporters.advised import of_advice

CLUSTER = """
name = "orion"
[default]
tier = "hdd"
count = 1
width = "1MiB"
[[tier]]
name = "hdd"
servers = 6
preset = "hdd-7200"
[[tier]]
name = "ssd"
servers = 2
preset = "ssd-sata"
"""

LOGS = Path(darshan.__file__).parent

WORKLOAD = """
import os, sys
for name in sys.argv[2:]:
    fd = os.open(f"{sys.argv[1]}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
    for n in range(64):
        os.pwrite(fd, bytes(16384), n * 16384)
"""

ALL_ON_A_DISK = """
version = 1
pool = "emulated"
[[file]]
path = "*.bin"
[[file.region]]
offset = "0"
round = ["hdd.0:16KiB"]
"""


def log(name):
    found = sorted(LOGS.rglob(name))
    assert found, f"PyDarshan ships no {name}"
    return found[0]


@pytest.fixture
def cluster(tmp_path):
    file = tmp_path / "orion.toml"
    file.write_text(CLUSTER)
    return file


@pytest.fixture
def advise(stripewise):
    def run(*arguments, **options):
        return json.loads(stripewise("advise", *arguments, "--json", **options).stdout)

    return run


def strace(path, lines):
    path.write_text("".join(f"100 {line}\n" for line in lines))
    return path


def check(document):
    """What holds of any advice."""
    for gain in [document["total"]["gain"], *(row["gain"] for row in document["files"])]:
        assert 0 < gain["low"] <= gain["ratio"] <= gain["high"]
    for row in document["files"]:
        assert row["change"] == (row["recommended"] is not None)
        if row["change"]:
            assert row["gain"]["low"] >= 1.03
        else:
            assert row["gain"]["low"] <= 1 <= row["gain"]["high"]
            assert all(tier["present_bytes"] == tier["recommended_bytes"] for tier in row["space"])
        for finding in row["findings"]:
            assert finding["words"] and finding["numbers"]
            # What went through MPI-IO is told without a remedy: the others are remedies.
            assert finding["mend"] or finding["kind"] == "mpi-io"
            assert all(f"{name}={value}" in finding["mend"][-1] for name, value in finding["hints"].items())
    return document


def test_a_run_that_waits_for_one_disk_is_laid_out_anew(emulated, advise, tmp_path):
    (tmp_path / "bad.layout").write_text(ALL_ON_A_DISK)
    emulated.stripewise("apply", tmp_path / "bad.layout", "--pool", emulated.file)
    trace = tmp_path / "run.trace"
    names = ["rank1.bin", "rank2.bin"]
    run = [sys.executable, "-c", WORKLOAD, emulated.mount, *names]
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", *run)
    better = tmp_path / "better.layout"
    document = check(advise(trace, "--cluster", emulated.file, "-o", better))
    (row,) = document["files"]
    assert (row["path"], row["files"], row["present"]["source"]) == ("rank*.bin", 2, "pool")
    assert row["present"]["layout"] == [{"offset": 0, "round": ["hdd.0:16KiB"]}]
    assert row["present"]["bottleneck"]["kind"] == "one-server"
    assert row["change"] and row["gain"]["ratio"] > 1.3
    hdd, ssd = document["total"]["space"]
    assert hdd["present_bytes"] == 2 * 64 * 16384 and ssd["present_bytes"] == 0
    assert hdd["recommended_bytes"] + ssd["recommended_bytes"] == hdd["present_bytes"]
    assert better.read_text() == document["layout"]
    emulated.stripewise("apply", better, "--pool", emulated.file)
    # A second look at the same run finds nothing to gain: what was advised is kept. Its times are of other layouts.
    again = check(advise(trace, "--cluster", emulated.file))
    assert [of["name"] for of in again["about"]["lacks"]] == ["layouts"]
    assert not again["total"]["change"] and again["total"]["gain"] == {"ratio": 1, "low": 1, "high": 1}
    assert "[[file]]" not in again["layout"]


def test_one_request_and_none(advise, cluster, stripewise, tmp_path):
    one = strace(tmp_path / "one.strace", ['1.0 pwrite64(3</data/a>, ""..., 4096, 8192) = 4096 <0.000024>'])
    document = check(advise(one, "--cluster", cluster))
    (row,) = document["files"]
    assert (row["path"], row["requests"], row["written_bytes"], document["root"]) == ("a", 1, 4096, "/data")
    none = strace(tmp_path / "none.strace", ['1.0 openat(AT_FDCWD, "/data/a", O_RDONLY) = 3</data/a> <0.000024>'])
    printed = stripewise("advise", none, "--cluster", cluster).stdout
    assert "moved: nothing" in printed and "layout: the log has no read or write of a file" in printed
    failed = stripewise("advise", none, "--cluster", cluster, "--root", "/data", check=False)
    assert failed.returncode == 1 and "no read or write of a file below" in failed.stderr and "--root" in failed.stderr


def test_without_servers_all_but_the_layout_is_said_and_the_remedy_is_named(advise, stripewise, tmp_path):
    small = [f'1.0 pwrite64(3</data/a>, ""..., 100, {n * 200}) = 100 <0.000200>' for n in range(2000)]
    log_file = strace(tmp_path / "small.strace", small)
    document = check(advise(log_file))
    assert document["cluster"]["known_from"] == "unknown" and not document["total"]["change"]
    assert all(remedy in document["lacking"] for remedy in ("--cluster", "--osts", "--preset"))
    assert "tiny-requests" in [one["kind"] for row in document["files"] for one in row["findings"]]
    printed = stripewise("advise", log_file).stdout
    assert f"layout: {document['lacking']}" in " ".join(printed.split())
    # One option more, and layouts are spoken of.
    document = check(advise(log_file, "--osts", 16, "--preset", "ssd-sata"))
    assert document["cluster"]["known_from"] == "number" and document["lacking"] is None
    (tier,) = document["cluster"]["tiers"]
    assert (tier["servers"], tier["preset"]) == (16, "ssd-sata")
    failed = stripewise("advise", log_file, "--osts", 5000, check=False)
    assert failed.returncode == 2 and "--osts" in failed.stderr


def test_an_unknown_preset_is_refused(stripewise, tmp_path):
    one = strace(tmp_path / "one.strace", ['1.0 pwrite64(3</data/a>, ""..., 4096, 8192) = 4096 <0.000024>'])
    failed = stripewise("advise", one, "--preset", "floppy", check=False)
    assert failed.returncode == 1 and 'no preset "floppy"; there is hdd-7200' in failed.stderr


def test_an_unknown_planner_is_refused(stripewise, cluster, tmp_path):
    one = strace(tmp_path / "one.strace", ['1.0 pwrite64(3</data/a>, ""..., 4096, 8192) = 4096 <0.000024>'])
    failed = stripewise("advise", one, "--cluster", cluster, "--planner", "best", check=False)
    assert failed.returncode == 1 and "no planner 'best'; there is auto, fixed" in failed.stderr


def test_counters_alone_give_advice_with_a_wider_interval(advise, cluster):
    document = check(advise(log("sample-badost.darshan"), "--cluster", cluster))
    assert all(row["counters_only"] for row in document["files"])
    assert any("only counters" in reason for reason in document["total"]["reasons"])


@pytest.mark.parametrize("pattern", ["dxt.darshan", "sample-badost.darshan", "sample.darshan", "noposix.darshan"])
def test_real_logs(advise, cluster, pattern):
    check(advise(log(pattern), "--cluster", cluster))


def test_servers_are_found_in_the_log(advise):
    document = check(advise(log("sample-badost.darshan")))
    cluster = document["cluster"]
    assert cluster["found"] and cluster["file_system"] == "lustre"
    assert [row["present"]["source"] for row in document["files"]] == ["log"]
    (slow,) = [finding for finding in document["total"]["findings"] if finding["kind"] == "slow-server"]
    assert slow["severity"] == "high" and "OST" in slow["words"]
    assert any("servers are those that the log shows" in reason for reason in document["total"]["reasons"])


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_a_damaged_log_is_advised_on_or_refused_with_a_reason(stripewise, cluster, tmp_path, keep):
    cut = tmp_path / "cut.darshan"
    cut.write_bytes(log("sample-badost.darshan").read_bytes()[:keep])
    done = stripewise("advise", cut, "--cluster", cluster, "--json", check=False)
    if done.returncode == 0:
        check(json.loads(done.stdout))
    else:
        assert done.returncode == 1 and str(cut) in done.stderr and "Traceback" not in done.stderr


def test_what_is_printed(stripewise, cluster):
    printed = stripewise("advise", log("sample-badost.darshan"), "--cluster", cluster).stdout
    assert "ior-posix.out.* (2,0" in printed
    first = printed.splitlines()[0]
    assert first.startswith("job: ") and "user uid 69615, job 6265799, 2,048 processes" in printed
    assert "\nwrong: OST 14 gives a process" in printed and "tell the administrators" in printed
    assert "what they wait for now:" in printed


@pytest.mark.parametrize("pattern", ["sample-badost.darshan", "dxt.darshan", "ior_hdf5_example.darshan"])
def test_the_job_is_the_one_that_another_reader_finds(advise, pattern):
    report = darshan.DarshanReport(str(log(pattern)))
    files = {module: report.records[module].to_df() for module in ("POSIX", "STDIO") if module in report.records}
    job, metadata = advise(log(pattern))["job"], report.metadata["job"]

    streams = [number for number, name in report.name_records.items() if name.startswith("<STD")]

    def counted(name, of="counters"):
        tables = ((module, records[of]) for module, records in files.items())
        return sum(table[~table["id"].isin(streams)][f"{module}_{name}"].sum() for module, table in tables)

    assert (job["processes"], job["id"]) == (metadata["nprocs"], str(metadata["jobid"]))
    # Darshan has whole seconds, the first and the last in full.
    assert abs(job["run_s"] - metadata["run_time"]) <= 1
    assert job["read_bytes"] == counted("BYTES_READ") and job["written_bytes"] == counted("BYTES_WRITTEN")
    # Half a second of opens on each of many ranks is half a second.
    assert job["meta_s"] == pytest.approx(counted("F_META_TIME", "fcounters") / metadata["nprocs"], rel=0.05)
    assert 0 < job["io_share"] <= 1


def test_the_prediction_stands_beside_what_was_measured(advise, stripewise, cluster, tmp_path):
    log_file = writes(tmp_path / "run.strace", "big.dat")
    document = check(advise(log_file, "--cluster", cluster))
    job, total, reproduced = document["job"], document["total"], document["reproduced"]
    # 16 requests of each process take 0.3 s, one after the other: no preset has such servers.
    assert job["slowest_s"] == pytest.approx(4.8) and job["bytes_per_s"] == pytest.approx((2 << 30) / 4.8)
    assert 0.5 < reproduced["factor"] < 2 and reproduced["refused"] is None
    assert total["present_bytes_per_s"] == pytest.approx(job["bytes_per_s"] / reproduced["factor"])
    assert total["run_gain"]["ratio"] <= 1 / (1 - job["slowest_share"]) if job["slowest_share"] < 1 else True
    printed = stripewise("advise", log_file, "--cluster", cluster).stdout
    assert "measured 427 MiB/s" in printed and "\npredicted: " in printed


def test_what_is_not_reproduced_claims_no_gain(advise, stripewise, one_waits):
    document = check(advise(one_waits, "--osts", "4"))
    assert document["reproduced"]["factor"] < 0.5 and not document["total"]["change"]
    assert "40 requests took over 16 times the median" in document["reproduced"]["refused"]
    printed = stripewise("advise", one_waits, "--osts", "4").stdout
    assert "NOT reproduced, so no gain is claimed" in printed and "layout: nothing is said" in printed


def test_a_slow_server_is_fitted_apart_from_the_others(advise, stripewise):
    """One of 2,048 processes waited 23 times as long as the mean one: its file is on the slow target."""
    document = check(advise(log("sample-badost.darshan")))
    assert 0.5 < document["reproduced"]["factor"] < 2.0 and not document["total"]["change"]
    rates = {profile["tier"]: profile["bytes_per_s"] for profile in document["reproduced"]["profiles"]}
    assert rates.keys() == {"ost", "ost.14 (OST 14)"} and rates["ost.14 (OST 14)"] < rates["ost"] / 10
    printed = stripewise("advise", log("sample-badost.darshan")).stdout
    assert "fitted to the log, ost.14 (OST 14) apart from the others" in printed


def test_a_file_without_a_handle_is_on_the_metadata_tier(emulated, advise, tmp_path):
    (emulated.base / "namespace" / "tree" / "plain.dat").write_bytes(bytes(1 << 20))
    emulated.stripewise("run", "--pool", emulated.file, "--", "cp", __file__, emulated.mount / "placed.py")
    trace, page = tmp_path / "run.trace", tmp_path / "r.html"
    files = [emulated.mount / "plain.dat", emulated.mount / "placed.py"]
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", "sha256sum", *files)
    document = check(advise(trace, "--cluster", emulated.file))
    row = next(row for row in document["files"] if row["path"] == "plain.dat")
    assert row["present"]["bottleneck"]["words"].startswith("all requests go to meta, ")
    emulated.stripewise("report", trace, "--pool", emulated.file, "-o", page)
    assert ">meta<" in page.read_text()


def test_processes_of_a_shell_script_are_no_ranks(emulated, advise, tmp_path):
    trace = tmp_path / "run.trace"
    script = 'for n in a b c d; do dd if=/dev/zero of="$0/$n.dat" bs=65536 count=8 2>/dev/null; done'
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", "sh", "-c", script, emulated.mount)
    document = check(advise(trace, "--cluster", emulated.file))
    assert document["about"]["processes"] >= 4
    found = [*document["total"]["findings"], *(one for row in document["files"] for one in row["findings"])]
    assert not [one for one in found if one["kind"] in ("one-rank", "rank-imbalance")]
    assert document["native"] is None, "a pool is no other file system"


ON_ONE_OST = """
name = "orion"
file_system = "{system}"
[default]
tier = "hdd"
count = 1
width = "1MiB"
[[tier]]
name = "hdd"
servers = 6
preset = "hdd-7200"
pool = "disk_pool"
"""
HOSTILE = "it's $(touch gone); `x` [bold] red.dat"


def writes(path, name):
    """Four processes that write one file of 2 GiB in large pieces, as strace tells it."""
    size = 32 << 20
    path.write_text(
        "".join(
            f"{100 + n % 4} {1700000000 + n // 4 * 0.3001:.6f} "
            f'pwrite64(3</data/{name}>, ""..., {size}, {n * size}) = {size} <0.300000>\n'
            for n in range(64)
        )
    )
    return path


@pytest.mark.parametrize("system", ["lustre", "beegfs", "cephfs", "orangefs"])
def test_native_commands_of_what_should_change(advise, stripewise, tmp_path, system):
    file = tmp_path / "orion.toml"
    file.write_text(ON_ONE_OST.format(system=system))
    log_file = writes(tmp_path / "run.strace", "big.dat")
    document = check(advise(log_file, "--cluster", file))
    native = document["native"]
    assert document["total"]["change"] and native["to"] == system and not native["existing"]
    (of_file,) = native["files"]
    assert of_file["path"] == "/data/big.dat" and native["assumed"]
    assert of_file["refused"] or (of_file["commands"] and of_file["verify"] and of_file["loss_ratio"] > 0)
    printed = stripewise("advise", log_file, "--cluster", file).stdout
    for command in of_file["commands"][:6]:
        assert command["shell"].splitlines()[0] in printed
    assert "assumed:" in printed
    if not of_file["refused"]:
        # What it says to do does what it shows.
        lines = [line.strip() for line in printed.splitlines()]
        for command in [line for line in lines if line.startswith("stripewise ")]:
            stripewise(*shlex.split(command)[1:])
        script = (stripewise.cwd / "set.sh").read_text()
        assert all(command["shell"] in script for command in of_file["commands"])


def test_nothing_in_a_path_is_a_command(advise, stripewise, tmp_path):
    file = tmp_path / "orion.toml"
    file.write_text(ON_ONE_OST.format(system="lustre"))
    log_file = writes(tmp_path / "run.strace", HOSTILE)
    (of_file,) = advise(log_file, "--cluster", file)["native"]["files"]
    path = of_file["path"]
    assert path.startswith("/data/it's $(touch gone)")
    for command in of_file["commands"]:
        assert shlex.split(command["shell"]) == command["arguments"] and path in command["arguments"]
    printed = stripewise("advise", log_file, "--cluster", file).stdout
    assert shlex.quote(path) in printed
    assert "[bold]" in printed, "names are no markup"


def test_servers_that_only_the_log_shows_have_no_pools():
    trace = sw.read(log("sample-badost.darshan"))
    document = sw.advise(trace).document
    assert document["cluster"]["found"]
    # As if one of its files were worth more stripes.
    document["total"]["change"] = document["files"][0]["change"] = True
    document["layout"] = (
        'version = 1\npool = "found"\n[[file]]\npath = "a"\n[[file.region]]\noffset = "0"\nround = ["ost.0-1:1MiB"]\n'
    )
    native = of_advice(document, trace.native, lambda _: document)
    (of_file,) = native.exported.files
    assert of_file.commands and "no pool is named" in native.assumed[0]
    assert not any("-p" in command.arguments for command in of_file.commands)


def test_names_that_were_replaced_by_numbers_have_no_commands(advise):
    document = check(advise(log("noposix.darshan")))
    assert document["cluster"]["found"] and not document["total"]["change"] and document["native"] is None


@pytest.mark.parametrize("path", ["/dev/shm/a.dat", "/tmp/me/a.dat", "/data/__pycache__/a.pyc"])
def test_what_is_on_no_lustre_has_no_commands_of_it(advise, tmp_path, path):
    file = tmp_path / "orion.toml"
    file.write_text(ON_ONE_OST.format(system="lustre"))
    log_file = writes(tmp_path / "run.strace", "big.dat")
    assert advise(log_file, "--cluster", file)["total"]["change"]
    log_file.write_text(log_file.read_text().replace("/data/big.dat", path))
    assert not advise(log_file, "--cluster", file)["total"]["change"]


def test_stripes_on_lustre_are_those_of_its_administrators(advise, tmp_path):
    file = tmp_path / "orion.toml"
    file.write_text(ON_ONE_OST.format(system="lustre"))
    log_file = writes(tmp_path / "run.strace", "big.dat")
    (command,) = advise(log_file, "--cluster", file)["native"]["files"][0]["commands"]
    told = command["arguments"]
    # 2 GiB by four processes: a stripe each, and no narrower than 1 MiB.
    assert told[told.index("-c") + 1] == "4" and told[told.index("-S") + 1].endswith("M")
    # A small file stays on its one stripe.
    small = tmp_path / "small.strace"
    small.write_text("".join(log_file.read_text().splitlines(keepends=True)[:8]))
    assert not advise(small, "--cluster", file)["total"]["change"]


def test_servers_whose_number_alone_is_known_have_no_pools(advise, stripewise, tmp_path):
    log_file = writes(tmp_path / "run.strace", "big.dat")
    document = check(advise(log_file, "--osts", 6))
    assert document["cluster"]["found"] and document["total"]["change"]
    native = document["native"]
    (of_file,) = native["files"]
    assert of_file["commands"] and "no pool is named" in native["assumed"][0]
    assert not any("-p" in command["arguments"] for command in of_file["commands"])
    printed = stripewise("advise", log_file, "--osts", 6).stdout
    assert of_file["commands"][0]["shell"] in printed and "--pool-map" in printed


def test_no_name_reaches_the_terminal_as_a_control_sequence(advise, stripewise, tmp_path):
    file = tmp_path / "orion.toml"
    file.write_text(ON_ONE_OST.format(system="lustre"))
    log_file = writes(tmp_path / "run.strace", r"a\33[31mred.dat")
    (of_file,) = advise(log_file, "--cluster", file)["native"]["files"]
    assert of_file["path"] == "/data/a\x1b[31mred.dat"
    printed = stripewise("advise", log_file, "--cluster", file).stdout
    assert "\x1b" not in printed and r"a\x1b[31mred.dat" in printed
    assert "write all to a script" in printed


@pytest.mark.parametrize(
    ("path", "root", "below"),
    [
        ("/a/b/../c/d", "/a/c", "d"),
        ("//d", "/", "d"),
        ("d/e", "/", "d/e"),
        ("d/e", "/d", None),
        ("/ab", "/a", None),
        ("d/e", "d", "e"),
        ("./d/./e", "d", "e"),
        ("e", "", "e"),
        ("../e", "", "e"),
        ("/d/e", "", None),
        ("/caf\udce9", "/", None),
    ],
)
def test_paths_of_logs_are_found_below_a_root(path, root, below):
    assert pricing._below(path, root) == below


@pytest.mark.parametrize("name", ["big.dat", "out/big.dat", "./big.dat", "../big.dat"])
def test_relative_paths_of_a_log_are_advised_on_and_exported(advise, stripewise, tmp_path, name):
    file = tmp_path / "orion.toml"
    file.write_text(ON_ONE_OST.format(system="lustre"))
    rows = "".join(
        f"{name},write,{n * (32 << 20)},{32 << 20},{n % 4},{n * 10**8},{n * 10**8 + 3 * 10**8}\n" for n in range(64)
    )
    log_file = tmp_path / "run.csv"
    log_file.write_text("file,op,offset,size,pid,start_ns,end_ns\n" + rows)
    document = check(advise(log_file, "--cluster", file))
    assert document["total"]["change"] and document["native"]["files"][0]["loss_ratio"] is not None
    printed = stripewise("advise", log_file, "--cluster", file).stdout
    for command in [line.strip() for line in printed.splitlines() if line.strip().startswith("stripewise ")]:
        stripewise(*shlex.split(command)[1:])


def test_names_that_are_no_text_are_advised_on_and_no_layout_names_them(advise, stripewise, tmp_path):
    file = tmp_path / "orion.toml"
    file.write_text(ON_ONE_OST.format(system="lustre"))
    log_file = tmp_path / "run.strace"
    both = [
        writes(tmp_path / name, name).read_text().replace("/data/", f"/data/{directory}")
        for name, directory in (("caf\\351", ""), ("plain.dat", ""), ("below.dat", "d\\351/"))
    ]
    log_file.write_text("".join(both))
    document = check(advise(log_file, "--cluster", file))
    rows = {row["path"]: row["change"] for row in document["files"]}
    assert rows == {"caf\ufffd": False, "d\ufffd/below.dat": False, "plain.dat": True}
    assert "plain.dat" in document["layout"] and "caf" not in document["layout"]
    stripewise("advise", log_file, "--cluster", file)
    stripewise("report", log_file, "--cluster", file, "-o", tmp_path / "run.html")
    # A log of nothing else is advised on, too.
    log_file.write_text(both[0] + both[2])
    assert not check(advise(log_file, "--cluster", file))["total"]["change"]
    stripewise("report", log_file, "--cluster", file, "-o", tmp_path / "run.html")


def test_one_known_server_is_no_choice(stripewise):
    printed = stripewise("advise", log("ior_hdf5_example.darshan")).stdout
    assert "the log shows one server alone" in printed and "--cluster" in printed
    assert "beyond doubt" not in printed


def test_devices_and_what_the_kernel_makes_up_are_no_files(advise, stripewise, tmp_path):
    line = '{n}.0 {call}(3<{path}>, ""..., 65536, {at}) = 65536 <0.000900>'
    calls = [
        line.format(n=n, call=call, path=path, at=n * 65536)
        for n in range(40)
        for call, path in (
            ("pread64", "/dev/zero"),
            ("pwrite64", "/dev/null"),
            ("pread64", "/proc/self/maps"),
            ("pread64", "/sys/block/sda/stat"),
            ("pwrite64", "/data/a"),
            ("pwrite64", "/dev/shm/b"),
        )
    ]
    log_file = strace(tmp_path / "run.strace", calls)
    document = check(advise(log_file))
    assert (document["job"]["read_bytes"], document["job"]["written_bytes"]) == (0, 2 * 40 * 65536)
    assert {row["path"] for row in document["files"]} == {"data/a", "dev/shm/b"} and document["total"]["left_out"] == 0


def test_copies_inside_the_kernel_stand_beside_what_moved(advise, stripewise, tmp_path):
    size = 40_000_000
    lines = [
        '1.0 openat(AT_FDCWD, "/data/in", O_RDONLY) = 3</data/in> <0.000020>',
        '1.1 openat(AT_FDCWD, "/data/out", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 4</data/out> <0.000020>',
        f"1.2 copy_file_range(3</data/in>, NULL, 4</data/out>, NULL, {1 << 62}, 0) = {size} <0.173812>",
        "1.5 copy_file_range(3</data/in>, NULL, 4</data/out>, NULL, 4096, 0) = -1 EIO (Input/output error) <0.000100>",
    ]
    log_file = strace(tmp_path / "cp.strace", lines)
    assert advise(log_file)["job"]["copied_bytes"] == size
    said = "moved: nothing: no file was read or written; beside that the kernel copied 38.1 MiB by itself"
    assert said in " ".join(stripewise("advise", log_file).stdout.split())
    strace(log_file, [*lines, '2.0 pread64(3</data/in>, ""..., 4096, 0) = 4096 <0.000900>'])
    assert "the kernel copied 38.1 MiB" in " ".join(stripewise("advise", log_file).stdout.split())


def test_what_the_page_cache_served_waits_for_no_server(advise, tmp_path):
    lines = [f'{n}.0 pread64(3</data/a>, ""..., 65536, {n * 65536}) = 65536 <0.000009>' for n in range(60)]
    lines += [f'{n}.5 pread64(3</data/a>, ""..., 65536, {n * 65536}) = 65536 <0.000900>' for n in range(60, 70)]
    (row,) = check(advise(strace(tmp_path / "run.strace", lines), "--osts", 4))["files"]
    waits = row["present"]["bottleneck"]
    assert waits["kind"] == "memory" and waits["servers"] == []
    assert "no server for 86 % of the bytes" in waits["words"] and "the rest took 94 % of the time" in waits["words"]


def test_appends_to_a_file_of_unknown_length_do_not_jump(advise, tmp_path):
    lines = []
    opened = 'openat(AT_FDCWD, "/data/app.log", O_WRONLY|O_CREAT|O_APPEND, 0666) = 3</data/app.log> <0.00002>'
    for n in range(200):
        lines.append(f"{n}.0 {opened}")
        lines.append(f'{n}.1 write(3</data/app.log>, "line"..., 19) = 19 <0.000900>')
        lines.append(f"{n}.2 close(3</data/app.log>) = 0 <0.00001>")
    (row,) = check(advise(strace(tmp_path / "run.strace", lines)))["files"]
    kinds = {finding["kind"] for finding in row["findings"]}
    assert "tiny-requests" in kinds and "random-writes" not in kinds


def test_where_servers_are_unknown_nothing_is_shown_of_layouts(stripewise, tmp_path):
    log_file = writes(tmp_path / "run.strace", "big.dat")
    printed = stripewise("advise", log_file).stdout
    assert "should be" not in printed and "storage.0" not in printed
    assert "written  requests" in printed and "what they wait for now:" in printed
    # Nor of waits where the log does not even time its requests.
    log_file = tmp_path / "fio.log"
    rows = "".join(f"0 big.dat write {n * 4096} 4096\n" for n in range(64))
    log_file.write_text("fio version 3 iolog\n0 big.dat add\n0 big.dat open\n" + rows + "0 big.dat close\n")
    printed = stripewise("advise", log_file).stdout
    assert "files below .:" in printed and "what they wait for now:" not in printed


def test_directories_come_before_files_and_small_files_keep_one_stripe(advise, stripewise, tmp_path):
    file = tmp_path / "orion.toml"
    file.write_text(ON_ONE_OST.format(system="lustre"))
    # Four other processes, after those before them.
    lines = ['100 1700000001.5 pwrite64(3</data/out/notes.txt>, ""..., 300000, 0) = 300000 <0.020000>\n']
    for number, name in enumerate(("alone.dat", "out/first.h5", "out/second.h5"), 2):
        text = writes(tmp_path / "one.strace", name).read_text()
        lines += [f"{number}{line[1:4]}170000{number}{line[11:]}" for line in text.splitlines(keepends=True)]
    log_file = tmp_path / "run.strace"
    log_file.write_text("".join(lines))
    document = check(advise(log_file, "--cluster", file))
    files = document["native"]["files"]
    assert [(of["path"], of["directory"]) for of in files] == [("/data/out", True), ("/data/alone.dat", False)]
    (command,) = files[0]["commands"]
    told = command["arguments"]
    # A progressive layout: one stripe for what is as small as the notes, then one for each writer.
    first, rest = told[: told.index("-E", told.index("-E") + 1)], told[told.index("-E", told.index("-E") + 1) :]
    assert first[first.index("-E") + 1] == "16M" and first[first.index("-c") + 1] == "1"
    assert rest[rest.index("-E") + 1] == "eof" and rest[rest.index("-c") + 1] == "4"
    printed = stripewise("advise", log_file, "--cluster", file).stdout
    assert "the first 16MiB are on one stripe, for small files of the directory" in " ".join(printed.split())
    assert printed.index("/data/out\n") < printed.index("/data/alone.dat\n")


def test_nodes_of_ranks_are_those_of_the_log(advise):
    rows = advise(log("ior_hdf5_example.darshan"))["files"]
    (told,) = [finding for row in rows for finding in row["findings"] if finding["kind"] == "mpi-io"]
    assert "by 4 ranks on 1 node" in told["words"] and told["numbers"]["writer_nodes"] == 1
    hosts = {process["host"] for process in sw.read(log("ior_hdf5_example.darshan")).summary()["processes"]}
    assert len(hosts) == 1 and hosts != {""}
