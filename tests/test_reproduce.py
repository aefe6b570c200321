"""`stripewise reproduce`: every experiment runs, says what it must, and the document needs nothing but itself."""

import base64
import json
import math
import re

import pytest

from conftest import Stripewise
from stripewise.reproduce import measure, placement
from stripewise.reproduce.cluster import Devices, Operation, Tier
from stripewise.reproduce.workload import Ior

NAMES = [
    *(f"harl-fig{figure}" for figure in ("1a", "7", "8", "9", "10", "11", "12")),
    *("chen-models", "chen-ior"),
    *("song-table2", "song-fig5", "song-fig6", "song-fig7"),
]
EMULATED = {"harl-fig1a", "harl-fig7", "harl-fig9", "harl-fig10", "harl-fig11", "song-fig5", "song-fig7"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All experiments at a tiny scale, simulated: the results, and the directory of the document."""
    base = tmp_path_factory.mktemp("reproduce")
    done = Stripewise(base)("reproduce", "all", "--quick", "--simulate-only", "--json", "-o", base / "out", timeout=600)
    results = {result["name"]: result for result in json.loads(done.stdout)["results"]}
    return results, base / "out"


def test_the_list_has_every_row(stripewise):
    listed = stripewise("reproduce", "--list").stdout
    rows = {line.split()[0]: line for line in listed.splitlines()[1:] if line.strip()}
    assert list(rows) == NAMES
    assert {name for name, line in rows.items() if "emulated" in line} == EMULATED


def test_every_row_is_simulated(everything):
    results, _ = everything
    assert list(results) == NAMES
    for name, result in results.items():
        assert result["rows"] and result["cells"] and result["setup"], name
        assert not result["invalid"], name
        for row in result["rows"]:
            assert row["paper"] is not None and row["why"], (name, row)
            simulated = row["simulated"]
            assert simulated if isinstance(simulated, str) else math.isfinite(simulated), (name, row)
            assert row["measured"] is None
        for cell in result["cells"]:
            assert math.isfinite(cell["simulated"]) and cell["simulated"] > 0, (name, cell)


def test_the_layouts_of_the_papers_come_out(everything):
    """Song's Table II, and the pairs that HARL reports: whatever the scale, they are computed exactly."""
    results, _ = everything
    for name, least in (("song-table2", 8), ("harl-fig7", 2), ("harl-fig9", 4), ("harl-fig10", 3)):
        layouts = [row for row in results[name]["rows"] if "layout of" in row["what"]]
        assert len(layouts) == least
        for row in layouts:
            assert row["simulated"] == row["paper"], (name, row)


def test_what_lies_outside_a_paper_s_own_model_is_said(everything):
    results, _ = everything
    rows = {row["what"]: row for row in results["harl-fig7"]["rows"]}
    writes = rows["512K, write: HARL over 64K"]
    assert writes["paper"] == 176.7
    assert "outside the paper's own latency model" in writes["why"]
    assert "at most +78 %" in writes["why"]  # 64K / 36K


def test_the_document_needs_nothing_but_itself(everything):
    _, directory = everything
    page = (directory / "reproduce.html").read_text()
    images = re.findall(r'src="([^"]*)"', page)
    assert len(images) == len(NAMES)
    drawn = [base64.b64decode(image.removeprefix("data:image/svg+xml;base64,")).decode() for image in images]
    for text in [re.sub(r'src="[^"]*"', "", page), *drawn]:
        assert not re.search(r'(?:src|href)="(?!#)', text)
        assert not re.search(r"<script|<link|@import|url\((?!#)", text)
    assert all(drawing.startswith("<svg") and "NaN" not in drawing for drawing in drawn)
    for name in NAMES:
        assert f'<h2 id="{name}">' in page
    markdown = (directory / "reproduce.md").read_text()
    for image in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", markdown):
        assert (directory / image).is_file()


def test_a_measured_run_says_what_it_is(stripewise):
    done = stripewise("reproduce", "harl-fig1a", "--quick", "--no-plots", "--json", timeout=300)
    (result,) = json.loads(done.stdout)["results"]
    (row,) = result["rows"]
    if result["invalid"]:
        assert row["measured"] is None and "emulated servers" in result["invalid"][0]
    else:
        assert row["measured"]["runs"] == 1 and row["measured"]["median"] > 1
        assert any("EMULATED" in line for line in result["setup"])


def test_a_run_whose_devices_cannot_keep_their_times_gives_no_figure(tmp_path):
    """As on a machine that is too busy: here the devices themselves are faster than any process can be woken."""
    instant = Operation(0.0001, 0.0001, 100_000)
    pool = measure.EmulatedPool(tmp_path / "pool", Devices("instant", (Tier("hdd", 1, instant, instant),), None), 1.0)
    pool.place({"f.dat": placement.widths([65536])})
    with pytest.raises(measure.InvalidRunError, match=r"no figure after 3 runs: INVALID RUN, .* stop other work"):
        pool.run("f.dat", Ior.uniform(2, 4096, 1 << 18), "write")


def test_an_unknown_name_is_named_with_those_that_exist(stripewise):
    done = stripewise("reproduce", "harl-fig99", check=False)
    assert done.returncode == 1
    assert "'harl-fig99'" in done.stderr and "harl-fig7" in done.stderr and "all" in done.stderr


def test_no_name_is_a_usage_error(stripewise):
    done = stripewise("reproduce", check=False)
    assert done.returncode == 2 and "--list" in done.stderr
