"""Metrics of a pool in the text format of Prometheus."""

import json
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stripewise import StripewiseError
from stripewise.api import adapt, metrics
from stripewise.pool import Pool

PATIENCE_S = 30


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
        moved = {"time_s": 1.0, "verdict": "moved", "copied_bytes": 700, "used_bytes": {"hdd.0": 9, "hdd.1": "x"}}
        kept = {"time_s": 2.0, "verdict": "kept", "measured": gain, "used_bytes": {"hdd.0": 9, "hdd.1": "x"}}
        adapt.state_file(emulated).write_text("".join(json.dumps(line) + "\n" for line in (moved, kept, kept)))
        then = asked(url)
        assert then["stripewise_adapt_copied_bytes_total",] == 700
        assert then["stripewise_adapt_decisions_total", "kept"] == 2
        assert then["stripewise_adapt_gain_ratio", "measured"] == 1.5
        assert then["stripewise_adapt_gain_ratio", "predicted"] == 2.0
        assert then["stripewise_server_used_bytes", "hdd.0"] == 9
        assert ("stripewise_server_used_bytes", "hdd.1") not in then, "what is no number is left out"
    finally:
        end()


def test_adapt_serves_nothing_where_it_cannot_listen_or_read_the_address(pool):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StripewiseError, match="name another address"):
            metrics.serve(Pool.load(pool.file), str(port))
    for wrong in ("", "x", "70000", "a:b:1", "localhost:"):
        with pytest.raises(StripewiseError, match=r"write \[HOST:\]PORT"):
            metrics.serve(Pool.load(pool.file), wrong)
    refused = pool.stripewise("adapt", pool.file, "--once", "--metrics", "nowhere", check=False)
    assert refused.returncode == 1 and "write [HOST:]PORT" in refused.stderr


def test_adapt_says_where_it_serves(pool):
    tried = pool.stripewise("adapt", pool.file, "--once", "--metrics", "127.0.0.1:0", check=False)
    assert "metrics for Prometheus at http://127.0.0.1:" in tried.stderr
