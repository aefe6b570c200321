"""IOR-style data checks: written, read back and read by the next rank, on random layouts over one to eight servers."""

import random

import pytest

SERVERS = [f"hdd.{number}" for number in range(6)] + ["ssd.0", "ssd.1"]
WIDTHS = [4 << 10, 12 << 10, 64 << 10, 100_001, 1 << 20, 3 << 20, 16 << 20]


@pytest.fixture
def eight(tmp_path, stripewise):
    """A pool of eight real directories."""
    disks = [tmp_path / "disks" / name for name in SERVERS]
    for disk in disks:
        disk.mkdir(parents=True)
    tiers = [f"--{disk.name.split('.')[0]}={disk}" for disk in disks]
    stripewise("pool", "init", "--name", "eight", "-o", tmp_path / "pool.toml", "--mount", tmp_path / "mount", *tiers)
    return tmp_path


def random_layout(rng, borders):
    """A layout with a region at each of some of `borders` and elsewhere, each on some servers in any order."""
    offsets = sorted({0, *rng.sample(borders, k=min(2, len(borders))), *(rng.randrange(1, 6 << 20) for _ in range(2))})
    regions = []
    for offset in offsets:
        servers = rng.sample(SERVERS, rng.randint(1, 8))
        stripes = ", ".join(f'"{server}:{rng.choice(WIDTHS)}B"' for server in servers)
        regions.append(f'[[file.region]]\noffset = "{offset}"\nround = [{stripes}]\n')
    return 'version = 1\npool = "eight"\n[[file]]\npath = "ior*"\n' + "\n".join(regions)


def workload(rng):
    """Regions of a file with a request size each, most of them no power of two; options of `stripewise bench`."""
    options, borders, offset = [], [], 0
    for _ in range(rng.randint(1, 4)):
        request = rng.choice([512, 4096, 70_001, 65_536, 131_072, 333_333, 1 << 20])
        length = request * 4 * rng.randint(1, max(1, (2 << 20) // (request * 4)))
        options += ["--region", f"{offset}:{length}:{request}:{rng.choice([1, 2])}"]
        borders.append(offset + length)
        offset += length
    options += ["--pattern", rng.choice(["sequential", "strided", "random"]), "--api", rng.choice(["pread", "read"])]
    return [*options, "--processes", "4", "--seed", str(rng.randrange(1000))], borders


@pytest.mark.parametrize("writer", ["preload", "mount"])
@pytest.mark.parametrize("seed", range(6))
def test_every_byte_is_right_on_random_layouts(eight, stripewise, seed, writer):
    rng = random.Random(seed)
    options, borders = workload(rng)
    file, pool = eight / "mount" / "ior", ["--pool", eight / "pool.toml"]
    ways = {"preload": [], "mount": ["--no-preload"]}
    reader = "mount" if writer == "preload" else "preload"

    def apply():
        layout = eight / "ior.layout"
        layout.write_text(random_layout(rng, borders))
        stripewise("apply", layout, *pool)

    def bench(way, *more):
        stripewise("run", "--quiet", *pool, *ways[way], "--", "stripewise", "bench", file, *options, *more)

    apply()
    bench(writer, "--verify")
    bench(reader, "--read", "--verify", "inline")
    apply()
    bench(reader, "--read", "--read-shift", "1", "--verify", "inline")
    bench(reader, "--write", "--verify")
    bench(writer, "--read", "--verify", "inline")
