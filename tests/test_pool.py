"""Making, showing and breaking pools."""

import json
import os
import re

import pytest

from conftest import PATIENCE_S
from stripewise import StripewiseError, _native, devices
from stripewise.api import adapt, heat, pools, reporting
from stripewise.cli import pool_calibrate
from stripewise.pool import Pool


def without_room(shown):
    """What is used and free changes from one call to the next: others write to the same disk."""
    return re.sub(r" +\d[\d.]* (?:bytes|[KMGTP]iB)", " -", shown)


def test_an_emulated_pool_says_so_everywhere(stripewise, tmp_path):
    done = stripewise("pool", "init", "p", "--hdd", "6", "--ssd", "2", "--emulate", "--capacity", "ssd=1GiB")
    assert "8 emulated servers" in done.stderr
    shown = stripewise("pool", "show", "p").stdout
    assert "emulated servers" in shown
    assert shown.count("emulated") >= 10
    document = json.loads(stripewise("pool", "show", "p/pool.toml", "--json").stdout)
    assert [(tier["name"], len(tier["servers"])) for tier in document["tiers"]] == [("hdd", 6), ("ssd", 2)]
    assert document["tiers"][1]["capacity_bytes"] == 1 << 30
    assert document["tiers"][0]["read"] == {
        "startup_min_s": pytest.approx(0.004),
        "startup_max_s": pytest.approx(0.012),
        "sequential_startup_s": None,
        "ahead_bytes": 0,
        "bandwidth_bytes_per_s": pytest.approx(80e6),
    }
    assert without_room(stripewise("show", "p/pool.toml").stdout) == without_room(shown)


def test_a_head_is_kept_in_the_pool_file(pool):
    _native.pool_write_profile(str(pool.file), "hdd", [1e-3, 2e-3, 1e-8], [1e-3, 2e-3, 1e-8], [[1e-4, 262144], None])
    text = pool.file.read_text()
    assert 'sequential_startup = "100us"' in text and 'ahead = "256KiB"' in text
    document = json.loads(pool.stripewise("pool", "show", pool.file, "--json").stdout)
    read, write = document["tiers"][0]["read"], document["tiers"][0]["write"]
    assert (read["sequential_startup_s"], read["ahead_bytes"]) == (pytest.approx(1e-4), 262144)
    assert (write["sequential_startup_s"], write["ahead_bytes"]) == (None, 0)
    pool.file.write_text(text.replace('sequential_startup = "100us"\n', ""))
    failed = pool.stripewise("pool", "show", pool.file, check=False)
    assert failed.returncode == 1 and "ahead: only a server with a sequential_startup has it" in failed.stderr


def test_seeks_are_kept_in_the_pool_file_and_shown(pool, monkeypatch):
    name = "hdd.0"
    before = pool.file.read_text()
    points = [(262144, 2.1e-3), (2097152, 2.6e-3)]
    _native.pool_write_seeks(str(pool.file), [(name, points)])
    text = pool.file.read_text()
    assert '["256KiB", "2.1ms"]' in text
    document = json.loads(pool.stripewise("pool", "show", pool.file, "--json").stdout)
    servers = {of["name"]: of["seeks"] for tier in document["tiers"] for of in tier["servers"]}
    assert [(gap, pytest.approx(startup_s)) for gap, startup_s in servers.pop(name)] == points
    assert not any(servers.values())
    shown = pool.stripewise("pool", "show", pool.file).stdout
    assert re.search(r"^seek over +256 KiB +2\.0 MiB *$", shown, flags=re.MULTILINE), shown
    assert re.search(r"^hdd\.0 +2\.10 ms +2\.60 ms *$", shown, flags=re.MULTILINE), shown
    for wrong, word in (("9ms", "may not fall"), ("soon", "soon"), ("-1ms", "-1ms")):
        pool.file.write_text(text.replace('"2.1ms"', f'"{wrong}"'))
        failed = pool.stripewise("pool", "show", pool.file, check=False)
        assert failed.returncode == 1 and word in failed.stderr and "seeks of server" in failed.stderr, failed.stderr
    pool.file.write_text(text)
    _native.pool_write_seeks(str(pool.file), [(name, None)])
    assert "seeks = " not in pool.file.read_text()
    with pytest.raises(_native.StripewiseError, match="have to grow"):
        _native.pool_write_seeks(str(pool.file), [(name, [(2, 1.0), (1, 2.0)])])
    # As `pool calibrate` writes them.
    profile = {"read": [1e-3, 2e-3, 1e-8], "write": [1e-3, 2e-3, 1e-8], "heads": [None, None], "warnings": []}
    servers = [{"name": "hdd.0", "seeks": [list(point) for point in points]}, {"name": "hdd.1", "seeks": None}]
    monkeypatch.setattr(_native, "calibrate", lambda *_: [{"name": "hdd", **profile, "servers": servers}])
    pools.calibrate(pools.Pool.load(pool.file))
    first, second, *_ = pools.Pool.load(pool.file).servers
    assert [(gap, pytest.approx(startup_s)) for gap, startup_s in first.seeks] == points
    assert second.seeks == ()
    # A place in the list of servers that was a path alone is a table now, and says the same.
    assert _native.pool_load(str(pool.file))["tiers"][0]["servers"][0]["path"] in before


def test_a_real_pool_keeps_to_hidden_directories(pool):
    assert all(next(disk.iterdir()).name.startswith(".test") for disk in pool.servers())
    shown = pool.stripewise("pool", "show", pool.file).stdout
    assert "real servers" in shown
    assert "not calibrated" in shown
    assert "emulated" not in shown


def test_the_metadata_tier_is_shown_and_measured_as_a_server(pool):
    namespace = next(path for disk in pool.servers() for path in disk.glob(".*-names"))
    (namespace / "tree" / "beside").write_bytes(bytes(1 << 20))
    shown = pool.stripewise("pool", "show", pool.file).stdout
    assert re.search(r"^meta +1 .* as ssd-sata, not measured *$", shown, flags=re.MULTILINE)
    assert re.search(r"^meta +real +1\.0 MiB .* ready ", shown, flags=re.MULTILINE)
    document = json.loads(pool.stripewise("pool", "show", pool.file, "--json").stdout)
    assert document["meta"]["servers"] == [
        {"id": 65535, "name": "meta", "path": str(namespace), "state": "used", "seeks": []}
    ]
    assert document["usage"]["meta"]["used_bytes"] >= 1 << 20
    calibrate = ["pool", "calibrate", pool.file, "--tier", "meta", "--seconds", "1", "--json"]
    measured = json.loads(pool.stripewise(*calibrate, timeout=PATIENCE_S).stdout)
    assert [(tier["name"], [server["name"] for server in tier["servers"]]) for tier in measured] == [("meta", ["meta"])]
    assert pool.file.read_text().count("[meta.read]") == 1
    shown = pool.stripewise("pool", "show", pool.file).stdout
    assert re.search(r"^meta +1 .* as calibrated *$", shown, flags=re.MULTILINE)
    # What a name costs is measured, too.
    names = measured[0]["names"]
    assert 0 < names["look_s"][0] <= names["look_s"][1] and 0 < names["change_s"][0] <= names["change_s"][1]
    kept = json.loads(pool.stripewise("pool", "show", pool.file, "--json").stdout)["meta_names"]
    assert kept == {key: pytest.approx(range_s, rel=1e-5) for key, range_s in names.items()}
    assert sorted(path.name for path in namespace.iterdir() if "calibrate" in path.name) == []


def test_a_pool_file_is_not_overwritten(stripewise):
    stripewise("pool", "init", "p", "--hdd", "1", "--emulate")
    done = stripewise("pool", "init", "p", "--hdd", "2", "--emulate", check=False)
    assert done.returncode == 1
    assert "pool.toml exists" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["p", "--emulate"], "how many"),
        (["p", "--emulate", "--hdd", "many"], "number of disks"),
        (["p", "q", "--emulate", "--hdd", "1"], "one directory"),
        (["--hdd", "3"], "needs --emulate"),
        (["--hdd", "/nowhere/at/all"], "is not a directory"),
        ([], "needs servers"),
        (["p", "--emulate", "--hdd", "1", "--capacity", "ssd=1GiB"], "no tier 'ssd'"),
        (["p", "--emulate", "--hdd", "1", "--capacity", "lots"], "'lots' is not a number of bytes"),
    ],
)
def test_a_wrong_init_names_the_value_and_makes_nothing(stripewise, tmp_path, arguments, said):
    done = stripewise("pool", "init", *arguments, check=False)
    assert done.returncode == 1
    assert said in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_an_emulated_metadata_tier_is_shown_and_counted_as_a_server(pool):
    pool.file.write_text(f'{pool.file.read_text()}\n[meta]\nemulate = "hdd-7200"\n')
    shown = pool.stripewise("pool", "show", pool.file).stdout
    assert "on real and emulated servers" in shown
    assert re.search(r"^meta +1 .* as emulated *$", shown, flags=re.MULTILINE)
    assert re.search(r"^meta +emulated ", shown, flags=re.MULTILINE)
    namespace = next(path for disk in pool.servers() for path in disk.glob(".*-names"))
    (namespace / "tree" / "beside").write_bytes(b"x" * 5000)
    before = _native.emulation_snapshot(str(pool.file))
    assert pool.run("cat", pool.mount / "beside").stdout == "x" * 5000
    done = {server["name"]: server for server in _native.emulation_snapshot(str(pool.file)).since(before)["servers"]}
    assert done["meta"]["read"]["bytes"] == 5000


def test_a_typo_in_the_pool_file_is_named_with_its_line(stripewise, tmp_path):
    stripewise("pool", "init", "p", "--hdd", "2", "--emulate")
    file = tmp_path / "p" / "pool.toml"
    text = file.read_text()
    file.write_text(text.replace("[default]\nwidth", "[default]\nwitdh"))
    done = stripewise("pool", "show", "p", check=False)
    line = 1 + file.read_text().split("witdh")[0].count("\n")
    assert done.returncode == 1
    assert f"pool.toml:{line}:" in done.stderr
    assert "witdh" in done.stderr


def test_a_missing_pool_file_is_named(stripewise):
    done = stripewise("pool", "show", "nowhere.toml", check=False)
    assert done.returncode == 1
    assert "nowhere.toml" in done.stderr


def test_show_names_a_missing_server(pool):
    gone = next(pool.servers()[0].iterdir())
    gone.rename(gone.with_name("elsewhere"))
    assert "not there" in pool.stripewise("pool", "show", pool.file).stdout


@pytest.mark.parametrize(
    ("name", "rotational", "kind"), [("sda", "1", "hdd"), ("sda", "0", "ssd"), ("nvme0n1", "0", "nvme")]
)
def test_disks_are_told_apart_by_what_the_kernel_says(tmp_path, name, rotational, kind):
    disk = tmp_path / "devices" / name
    (disk / "queue").mkdir(parents=True)
    (disk / "queue" / "rotational").write_text(rotational + "\n")
    partition = disk / f"{name}1"
    partition.mkdir()
    stack = tmp_path / "devices" / "dm-0"
    (stack / "queue").mkdir(parents=True)
    (stack / "slaves").mkdir()
    (stack / "slaves" / f"{name}1").symlink_to(partition)
    assert devices._kind_of_device(disk) == kind
    assert devices._kind_of_device(partition) == kind
    assert devices._kind_of_device(stack) == kind


def test_decisions_that_may_not_be_read_keep_the_pool_from_no_page(emulated, monkeypatch):
    """As those of root's in a shared pool, of which only root reads the heat."""
    emulated.file.write_text(emulated.file.read_text() + "\n[heat]\n")
    adapt.state_file(Pool.load(emulated.file)).mkdir()
    shown = emulated.stripewise("pool", "show", emulated.file)
    assert "hdd.0" in shown.stdout and "not known when the pool is full" in shown.stderr
    document = json.loads(emulated.stripewise("pool", "show", emulated.file, "--json").stdout)
    assert document["full_in_s"] == {} and document["usage"]["hdd.0"]["error"] is None

    def refused(*_):
        raise _native.StripewiseError("permission denied")

    monkeypatch.setattr(heat, "hottest", refused)
    adapted = reporting._adapted(emulated.file)
    assert adapted is not None and (adapted.heat, adapted.decisions) == ([], [])


def test_a_disk_without_room_for_what_calibration_writes_is_named_before_anything_is_written(pool, monkeypatch):
    loaded = Pool.load(pool.file)
    small = os.statvfs_result((4096, 4096, 9000, 1000, 1000, 9, 9, 9, 0, 255))
    monkeypatch.setattr(pools.os, "statvfs", lambda _: small)
    monkeypatch.setattr(pools._native, "calibrate", lambda *_: pytest.fail("it has begun"))
    with pytest.raises(StripewiseError) as refused:
        pools.calibrate(loaded, ["ssd"])
    said = str(refused.value)
    assert (
        said.startswith(f"ssd.0 in {pool.base / 'disks/d3'}")
        and ": 4,096,000 bytes are free" in said
        and "--tier" in said
    )
    assert "needs 268,435,456" in said and "free 264,339,456 bytes" in said
    with pytest.raises(StripewiseError, match=r"hdd.0 in .*, hdd.1 in .*needs 805,306,368"):
        pools.calibrate(loaded, ["hdd"])


def test_a_server_whose_transfers_take_no_time_is_calibrated(pool, monkeypatch, capsys):
    """Memory can be so fast that noise hides what a byte takes."""
    fit = {
        "startup_min_s": 1e-6,
        "startup_max_s": 2e-6,
        "transfer_s_per_byte": 0.0,
        "sequential_startup_s": None,
        "ahead_bytes": 0,
        "residual": 0.5,
        "requests": 9,
    }
    server = {"name": "hdd.0", "method": "direct I/O", "read": fit, "write": {**fit, "transfer_s_per_byte": 1e-8}}
    tier = {"servers": [server], "names": None, "warnings": []}
    monkeypatch.setattr(pool_calibrate.pools, "calibrate", lambda *_, **__: [tier])
    pool_calibrate.pool_calibrate(pool.file, dry_run=True)
    read, write = (line for line in capsys.readouterr().out.splitlines() if "direct I/O" in line)
    assert "100" not in read and "100" in write
