"""Metrics of a pool in the text format of Prometheus."""

import json
import os
import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as text_string_to_openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from conftest import PATIENCE_S
from stripewise import StripewiseError
from stripewise.api import adapt, heat, metrics, parting, placing
from stripewise.cli import console
from stripewise.pool import Pool


@pytest.fixture
def emulated(tmp_path, stripewise):
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    write = "import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 2000)"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", write, base / "mount")
    return Pool.load(file)


def asked(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, *sorted(sample.labels.values())): sample.value for sample in samples}


def test_what_servers_did_and_what_was_decided_is_served(emulated):
    url, end = metrics.serve(emulated, "0")
    try:
        assert url.startswith("http://127.0.0.1:")
        first = asked(url)
        written = sum(
            value for name, value in first.items() if name[0] == "stripewise_server_bytes_total" and "write" in name
        )
        assert written >= 512_000
        assert first["stripewise_server_requests_total", "ssd.0"] > 0
        assert first["stripewise_server_busy_seconds_total", "hdd.0"] > 0
        assert first["stripewise_adapt_copied_bytes_total",] == 0
        gain = {"ratio": 1.5, "predicted_ratio": 2.0}
        moved = {"time_s": 1.0, "verdict": "moved", "copied_bytes": 700, "moved_heat_s": 1.5}
        promoted = {"copied_bytes": 50, "moved_heat_s": 0.25}
        kept = {"time_s": 2.0, "verdict": "kept", "measured": gain, "promoted": promoted, "moved_heat_s": "x"}
        adapt.state_file(emulated).write_text("".join(json.dumps(line) + "\n" for line in (moved, kept, kept)))
        then = asked(url)
        assert then["stripewise_adapt_copied_bytes_total",] == 700 + 2 * 50
        assert then["stripewise_adapt_moved_heat_seconds_total",] == 1.5 + 2 * 0.25
        assert then["stripewise_adapt_decisions_total", "kept"] == 2
        assert then["stripewise_adapt_gain_ratio", "measured"] == 1.5
        assert then["stripewise_adapt_gain_ratio", "predicted"] == 2.0
    finally:
        end()


def test_space_is_that_of_now_and_servers_that_are_gone_are_marked(pool):
    """Without any decision of `adapt`, as for a mount with metrics alone."""
    loaded = Pool.load(pool.file)
    url, end = metrics.serve(loaded, "0")
    names = ["hdd.0", "hdd.1", "hdd.2", "ssd.0", "meta"]
    try:
        first = asked(url)
        assert [first["stripewise_server_up", name] for name in names] == [1.0] * 5
        room = os.statvfs(pool.base)
        free = first["stripewise_server_free_bytes", "hdd.0"]
        # Other processes write to this disk, too.
        assert abs(free - room.f_bavail * room.f_frsize) < max(1 << 30, free / 10)
        assert first["stripewise_server_used_bytes", "hdd.0"] == 0
        pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(1, 256)) * 40000)")
        (hdd,) = [server for server in loaded.servers if server.name == "hdd.1"]
        hdd.path.rename(hdd.path.with_name("away"))
        until_s = time.monotonic() + PATIENCE_S
        while (then := asked(url))["stripewise_server_used_bytes", "hdd.0"] == 0:
            assert time.monotonic() < until_s, "what was written is not seen"
        assert [then["stripewise_server_up", name] for name in names] == [1.0, 0.0, 1.0, 1.0, 1.0]
        assert then["stripewise_server_used_bytes", "hdd.0"] >= 2_000_000
        for metric in ("stripewise_server_used_bytes", "stripewise_server_free_bytes"):
            assert (metric, "hdd.1") not in then, "nothing is known of a server that is gone"
        limited = pool.file.read_text().replace('name = "hdd"\n', 'name = "hdd"\ncapacity = "3000000B"\n')
        pool.file.write_text(limited)
        free = asked(url)["stripewise_server_free_bytes", "hdd.0"]
        assert 0 <= free <= 1_000_000, "what the tier's capacity leaves"
    finally:
        end()


LINE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[a-zA-Z_]\w*=\"(?:[^\"\\\n]|\\[\\\"n])*\",?)*)\})?"
    r" (?P<value>[+-]?(?:Inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?)|NaN)"
)
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def check_exposition(text):
    """The text format of Prometheus, by its page: each family has HELP, TYPE and its samples together, once."""
    assert text.endswith("\n")
    kinds, current, histograms = {}, None, {}
    seen = set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in kinds and len(line.split(" ", 3)[3]) > 0
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in SUFFIXES
            kinds[name] = kind
        else:
            found = LINE.fullmatch(line)
            assert found is not None, line
            assert (found["name"], found["labels"]) not in seen, line
            seen.add((found["name"], found["labels"]))
            kind = kinds[current]
            assert found["name"] in [current + suffix for suffix in SUFFIXES[kind]], line
            assert kind != "counter" or (current.endswith("_total") and float(found["value"]) >= 0)
            if kind == "histogram":
                labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found["labels"] or ""))
                bound = labels.pop("le", None)
                of = histograms.setdefault((current, *sorted(labels.items())), {"_bucket": []})
                if bound is None:
                    of[found["name"].removeprefix(current)] = float(found["value"])
                else:
                    of["_bucket"].append((float(bound.replace("+Inf", "inf")), float(found["value"])))
    for key, of in histograms.items():
        bounds, counts = zip(*of["_bucket"], strict=True)
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == float("inf"), key
        assert list(counts) == sorted(counts) and counts[-1] == of["_count"] and of["_sum"] >= 0, key
    return kinds, histograms


@pytest.mark.parametrize("wrong", ["# TYPE a counter", "a{x=1} 3", "a 1 x", "b 1"])
def test_the_check_of_the_text_finds_what_is_wrong(wrong):
    right = "# HELP a_total A.\n# TYPE a_total counter\na_total 1.0\n"
    check_exposition(right)
    with pytest.raises((AssertionError, KeyError)):
        check_exposition(f"{right}{wrong}\n")
    bucket = 'h_bucket{{le="{}"}} {}\n'
    head = "# HELP h H.\n# TYPE h histogram\n"
    good = head + bucket.format(1, 2) + bucket.format("+Inf", 3) + "h_count 3\nh_sum 1.0\n"
    check_exposition(good)
    for a, b in (("+Inf", "2"), ('"1"} 2', '"1"} 4'), ("h_count 3", "h_count 4")):
        with pytest.raises(AssertionError):
            check_exposition(good.replace(a, b))


def test_what_is_served_is_the_text_format(stripewise, tmp_path):
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    said = stripewise("mount", file, "--metrics", "0").stderr
    try:
        url = next(word for word in said.split() if word.startswith("http://127.0.0.1:"))
        (base / "mount" / "f").write_bytes(bytes(500_000))
        assert len((base / "mount" / "f").read_bytes()) == 500_000
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            kinds, histograms = check_exposition(answer.read().decode())
        asks = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        with urllib.request.urlopen(asks, timeout=PATIENCE_S) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            # This parser refuses what is not cumulative, has no +Inf or no type.
            named = [family.name for family in text_string_to_openmetrics_families(answer.read().decode())]
    finally:
        stripewise("umount", file, check=False)
    assert {name.removesuffix("_total") for name in kinds} == set(named)
    assert {key[1:] for key in histograms} >= {(("op", op), ("server", "hdd.0")) for op in ("read", "write")}
    page = (Path(__file__).parent.parent / "docs" / "adapt.md").read_text().partition("## Metrics")[2]
    assert set(re.findall(r"`(stripewise_\w+)`", page)) == set(kinds), "the page lists what is served"


def test_heat_that_has_moved_is_counted(hot):
    """What is hot goes to the SSD: that is most of the heat of all."""
    pool = Pool.load(hot[1])
    (file,) = heat.of(placing.place_of(Path("f"), pool))["files"]
    decision = adapt.reconsider(pool, adapt.Limits(horizon_s=87_600 * 3600))
    assert decision["verdict"] == "moved"
    of_the_read_mib = sum(cost for block, cost in file["blocks"] if 2 << 20 <= block * 65536 < 3 << 20)
    assert of_the_read_mib / 1e6 * 0.99 <= decision["moved_heat_s"] <= file["cost_us"] / 1e6 * 1.01
    url, end = metrics.serve(pool, "0")
    try:
        assert asked(url)["stripewise_adapt_moved_heat_seconds_total",] == pytest.approx(decision["moved_heat_s"])
    finally:
        end()


def test_only_heat_of_what_gets_another_place_has_moved():
    blocks = [(0, 1_000_000), (1, 2_000_000), (9, 4_000_000)]
    file = {"path": "f", "size_bytes": 950, "cost_us": 7_000_000, "blocks": blocks}
    found = {"block_bytes": 100, "period_s": 600, "missed": 0, "files": [file]}

    def change(before, after):
        regions = [[{"offset": at, "round": [of]} for at, of in side.items()] for side in (before, after)]
        return {"path": "f", "before": regions[0], "after": regions[1], "copied_bytes": 1, "kept_bytes": 1}

    def moved(before, after):
        return parting.moved_s(parting.Hot.of(found), [change(before, after)])

    assert moved({0: "hdd"}, {0: "hdd"}) == 0
    assert moved({0: "hdd"}, {0: "ssd"}) == pytest.approx(7.0)
    assert moved({0: "hdd"}, {0: "hdd", 100: "ssd", 150: "hdd"}) == pytest.approx(1.0)
    # The last block has half of its bytes.
    assert moved({0: "hdd", 925: "ssd"}, {0: "hdd"}) == pytest.approx(2.0)
    assert parting.moved_s(parting.Hot.of(found), [{**change({0: "hdd"}, {0: "ssd"}), "path": "another"}]) == 0


def test_adapt_serves_nothing_where_it_cannot_listen_or_read_the_address(pool):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StripewiseError, match="name another address"):
            metrics.serve(Pool.load(pool.file), str(port))
    for wrong in ("", "x", "70000", "a:b:1", "localhost:"):
        with pytest.raises(StripewiseError, match=r"write \[HOST:\]PORT"):
            metrics.serve(Pool.load(pool.file), wrong)
    refused = pool.stripewise("adapt", pool.file, "--once", "--metrics", "nowhere", check=False)
    assert refused.returncode == console.EXIT_USAGE and "--metrics nowhere: write [HOST:]PORT" in refused.stderr


@pytest.mark.parametrize("host", ["..", "a..b", f"{'a' * 64}.example", "\udcff", "a b", "a\0", "a\nb"])
def test_what_is_no_name_of_a_host_is_refused(pool, host):
    """The system is never asked for these: Python cannot put them as it is asked."""
    for wrong in (lambda: metrics.serve(Pool.load(pool.file), f"{host}:0"), lambda: metrics.address(f"{host}:0")):
        with pytest.raises(StripewiseError, match=r"write \[HOST:\]PORT"):
            wrong()


def test_an_address_has_a_host_or_is_of_this_machine_alone():
    assert metrics.address("9123") == ("127.0.0.1", 9123)
    assert metrics.address("localhost:0") == ("localhost", 0)
    assert metrics.address("[::1]:65535") == ("::1", 65_535)
    assert metrics.address(f"{'a' * 63}.example:1") == (f"{'a' * 63}.example", 1)


def test_adapt_says_where_it_serves(pool):
    tried = pool.stripewise("adapt", pool.file, "--once", "--metrics", "127.0.0.1:0", check=False)
    assert "metrics for Prometheus at http://127.0.0.1:" in tried.stderr


def test_clients_that_say_nothing_take_no_more_than_their_places(emulated):
    """The process that serves moves data, too: what others hold open keeps it from no file."""
    url, end = metrics.serve(emulated, "0")
    port = int(url.split(":")[2].split("/")[0])
    clients = []
    try:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3 * metrics.CLIENTS):
            clients.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
        # Those that found no place are closed.
        for client in clients[2 * metrics.CLIENTS :]:
            assert client.recv(1) == b""
        held = len(list(Path("/proc/self/fd").iterdir())) - before - len(clients)
        assert held <= metrics.CLIENTS + 1
        for client in clients:
            client.close()
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                assert asked(url)["stripewise_server_up", "hdd.0"] == 1.0
                break
            except OSError:
                assert time.monotonic() < until_s, "places that are free again are given"
    finally:
        end()


def test_a_client_that_says_a_letter_now_and_then_does_not_keep_its_place(emulated, monkeypatch):
    monkeypatch.setattr(metrics, "CLIENT_S", 0.3)
    url, end = metrics.serve(emulated, "0")
    try:
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) as client:
            client.settimeout(0.05)
            until_s, answer = time.monotonic() + PATIENCE_S, None
            while answer is None:
                assert time.monotonic() < until_s, "it is not closed"
                try:
                    client.send(b"a")
                    answer = client.recv(1)
                except TimeoutError:
                    continue
                except OSError:
                    break
        assert asked(url)["stripewise_server_up", "hdd.0"] == 1.0
    finally:
        end()


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=x", "text/plain; version=\xff", ";;q="])
def test_words_of_a_client_are_no_fault_of_the_server(emulated, accept, capfd):
    url, end = metrics.serve(emulated, "0")
    try:
        request = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert b"stripewise_server_up" in answer.read()
    finally:
        end()
    assert "Traceback" not in capfd.readouterr().err


def test_decisions_that_may_not_be_read_leave_the_rest(emulated):
    adapt.state_file(emulated).mkdir()
    url, end = metrics.serve(emulated, "0")
    try:
        served = asked(url)
        assert served["stripewise_server_up", "hdd.0"] == 1.0
        assert not [name for name in served if name[0].startswith("stripewise_adapt")]
    finally:
        end()


def test_a_gain_is_that_of_the_last_move(emulated):
    gain = {"ratio": 1.5, "predicted_ratio": 2.0}
    lines = [
        {"time_s": 1.0, "verdict": "moved", "ratio": 2.0},
        {"time_s": 2.0, "verdict": "kept", "measured": gain},
        {"time_s": 3.0, "verdict": "moved", "ratio": 3.0},
    ]
    adapt.state_file(emulated).write_text("".join(json.dumps(line) + "\n" for line in lines))
    url, end = metrics.serve(emulated, "0")
    try:
        served = asked(url)
        assert served["stripewise_adapt_gain_ratio", "predicted"] == 3.0
        assert ("stripewise_adapt_gain_ratio", "measured") not in served, "it is that of another move"
    finally:
        end()
