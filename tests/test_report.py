"""`stripewise report`: the page, as a browser shows it."""

import os
import re
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import darshan
import pytest

import stripewise as sw
from browser import Browser
from stripewise import _native
from stripewise.report.sections import layout_map, small_files
from stripewise.units import about_bytes, mib_per_s
from test_cluster import CLUSTER

WIDTHS = (360, 768, 1440)
SECTIONS = {"lacks", "overview", "advice", "layout", "servers", "heat", "sizes", "processes", "files"}
EXAMPLES = Path(darshan.__file__).parent

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2) & 'hot'.bin"

MIXED = """
import os, random, sys
random.seed(1)
fd = os.open(f"{sys.argv[1]}/{sys.argv[2]}", os.O_RDWR | os.O_CREAT, 0o644)
for n in range(48):
    os.pwrite(fd, bytes(1 << 20), n << 20)
for n in range(600):
    os.pread(fd, 8192, random.randrange(2048) * 8192)
os.fsync(fd)
"""

PROBLEMS = """
(() => {
  const problems = [];
  const seen = element => element.getClientRects().length > 0;
  const all = query => [...document.querySelectorAll(query)];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) problems.push(`wide: ${wide}`);
  for (const name of ["header", "nav", "main", "footer"]) {
    if (all(name).filter(seen).length !== 1) problems.push(name);
  }
  if (all("h1").length !== 1) problems.push("h1");
  let level = 1;
  for (const heading of all("h1, h2, h3, h4")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) problems.push(`heading: ${heading.textContent}`);
    level = own;
  }
  for (const section of all("section")) {
    if (!document.getElementById(section.getAttribute("aria-labelledby"))) problems.push(`section: ${section.id}`);
  }
  const ids = all("[id]").map(element => element.id);
  if (new Set(ids).size !== ids.length) problems.push("an id stands twice");
  for (const figure of all("figure")) {
    const shown = [...figure.querySelectorAll("svg")].filter(seen);
    const name = figure.querySelector("figcaption").textContent;
    if (shown.length !== 1) problems.push(`${shown.length} pictures: ${name}`);
    for (const svg of shown) {
      const alt = svg.getAttribute("aria-label");
      if (svg.getAttribute("role") !== "img" || alt.length < 20) problems.push(`alt: ${name}`);
      for (const text of svg.querySelectorAll("text")) {
        const own = text.getBoundingClientRect();
        if (own.width && (own.left < 0 || own.right > innerWidth)) problems.push(`cut: ${text.textContent} in ${name}`);
        const edge = svg.getBoundingClientRect();
        if (own.height && (own.top < edge.top - 1 || own.bottom > edge.bottom + 1)) {
          problems.push(`over the edge: ${text.textContent} in ${name}`);
        }
        if (own.width && own.height < 9) problems.push(`small: ${text.textContent} in ${name}`);
      }
    }
    if (!figure.querySelector("details table tbody tr")) problems.push(`no numbers: ${name}`);
  }
  // Contrast of text by WCAG, against the page: 4.5.
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = light(getComputedStyle(document.body).backgroundColor);
  for (const element of all("p, a, h1, h2, h3, li, td, th, caption, summary, figcaption, dt, dd")) {
    const own = light(getComputedStyle(element).color);
    const contrast = (Math.max(own, behind) + 0.05) / (Math.min(own, behind) + 0.05);
    if (contrast < 4.5) problems.push(`contrast ${contrast}: ${element.textContent.slice(0, 40)}`);
  }
  return problems;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(str(tmp_path_factory.mktemp("browser"))) as browser:
        yield browser


@pytest.fixture
def cluster(tmp_path):
    file = tmp_path / "orion.toml"
    file.write_text(CLUSTER)
    return file


@pytest.fixture
def mixed(emulated):
    """A trace of a file with a hostile name, and what is planned for it."""
    trace, layout = emulated.base / "run.trace", emulated.base / "new.layout"
    program = (sys.executable, "-c", MIXED, emulated.mount, HOSTILE)
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", *program)
    emulated.stripewise("plan", trace, "--pool", emulated.file, "-o", layout)
    return emulated, trace, layout


def example(name):
    return next(path for folder in ("tests/input", "examples/example_logs") for path in (EXAMPLES / folder).glob(name))


def larger(name, instead):
    """A log of the larger test data, where it is at hand."""
    data = os.environ.get("STRIPEWISE_TEST_DATA")
    return Path(data) / "darshan" / name if data else example(instead)


def check(browser, page, sections):
    """Loads the page at all sizes, light and dark, printed, and by keyboard."""
    browser.requested.clear()
    browser.complaints.clear()
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            browser.look(width, scheme=scheme)
            browser.open(page)
            assert browser.run(PROBLEMS) == [], (page.name, width, scheme)
            dark = browser.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
            assert dark == (scheme == "dark")
    assert {url for url in browser.requested if not url.startswith("data:")} == {page.absolute().as_uri()}
    found = set(browser.run("[...document.querySelectorAll('section')].map(section => section.id)"))
    assert found == sections
    browser.look(1000, scheme="dark", media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
    browser.run("dispatchEvent(new Event('afterprint'))")
    browser.look(768)
    assert browser.run("document.querySelectorAll('details[open]').length") == 0
    reach_everything(browser)
    assert browser.complaints == []


def reach_everything(browser):
    """Tab comes by every control in turn, and each shows that it has the focus."""
    controls = "[...document.querySelectorAll('a[href], button:not([hidden]), summary, [tabindex=\"0\"]')]"
    shown = f"{controls}.filter(element => element.checkVisibility())"
    count = browser.run(f"{shown}.length")
    assert count > 5
    browser.run("document.activeElement.blur()")
    reached = set()
    for _ in range(count):
        browser.press("Tab")
        place, outline = browser.run(
            f"[{shown}.indexOf(document.activeElement), getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert outline == "solid", place
        reached.add(place)
    assert reached == set(range(count))


def report(stripewise, log, *arguments):
    page = stripewise.cwd / "page.html"
    done = stripewise("report", log, "-o", page, *arguments, timeout=300)
    assert "wrote" in done.stderr
    assert not list(stripewise.cwd.glob(".page.html.*"))
    return page


@pytest.mark.parametrize(
    ("name", "instead", "sections"),
    [
        ("hdf5-collective-1024-ranks-lustre.darshan", "ior_hdf5_example.darshan", SECTIONS),
        ("file-per-process-badost.darshan", "sample-badost.darshan", SECTIONS),
        ("small-random-many-files-dxt.darshan", "sample-dxt-simple.darshan", SECTIONS - {"layout", "servers"}),
    ],
)
def test_logs_are_drawn(browser, stripewise, name, instead, sections):
    page = report(stripewise, larger(name, instead))
    check(browser, page, sections)
    assert page.stat().st_size < 5 << 20


def test_a_layout_is_drawn_before_and_after(browser, stripewise, mixed):
    emulated, trace, layout = mixed
    page = report(stripewise, trace, "--pool", emulated.file, "--layout", layout)
    check(browser, page, SECTIONS | {"commands"})
    text = browser.run("document.body.innerText")
    assert "emulated servers" in text
    assert f"stripewise apply {layout}" in text
    # Figures of the page are those of the simulator and of the layout file.
    document = _native.layout_read(str(layout))
    rounds = [" ".join(region["round"]) for region in document["files"][0]["regions"]]
    cells = browser.run("[...document.querySelectorAll('#layout td')].map(cell => cell.textContent)")
    assert set(rounds) <= set(cells)
    load = _native.server_load(
        _native.Trace(str(trace)), str(emulated.file), layout.read_text(), "new.layout", root=str(emulated.mount)
    )
    busy = browser.run("[...document.querySelectorAll('#servers tbody th')].map(cell => cell.textContent)")
    assert set(busy) == {server["name"] for server in load["servers"]}


def test_what_a_log_says_is_text(browser, stripewise, mixed):
    emulated, trace, _ = mixed
    page = report(stripewise, trace, "--pool", emulated.file)
    source = page.read_text()
    assert len(re.findall("<script", source)) == 1
    assert "<img" not in source
    browser.look(768)
    browser.open(page)
    assert browser.run("document.querySelectorAll('script').length") == 1
    assert browser.run("document.querySelectorAll('[onerror]').length") == 0
    assert HOSTILE in browser.run("document.querySelector('#files tbody th').textContent")
    assert browser.run(
        "[...document.querySelectorAll('svg')].some(svg => svg.getAttribute('aria-label').includes('<script>'))"
    )


def test_commands_are_copied_with_the_keyboard(browser, stripewise, cluster, tmp_path):
    # Large enough for more stripes, and in no directory of a node: else there are no commands of Lustre.
    log = tmp_path / "run.csv"
    rows = (f"/data/a,write,{n << 25},{1 << 25},{n % 4},{n * 10**8},{n * 10**8 + 3 * 10**8}\n" for n in range(64))
    log.write_text("file,op,offset,size,pid,start_ns,end_ns\n" + "".join(rows))
    page = report(stripewise, log, "--cluster", cluster)
    browser.look(1440)
    browser.open(page)
    assert "lfs " in browser.run("document.querySelector('#commands pre').textContent")
    browser.run("document.execCommand = what => { window.copied = [what, String(getSelection())]; return true; }")
    browser.run("Object.defineProperty(navigator, 'clipboard', {value: {writeText: () => Promise.reject()}})")
    browser.run("document.querySelector('#commands button').focus()")
    browser.press("Enter")
    assert (
        browser.run("new Promise(done => setTimeout(() => done(document.querySelector('.told').textContent)))")
        == "Copied."
    )
    what, text = browser.run("copied")
    assert what == "copy"
    assert text.strip() == browser.run("document.querySelector('#commands pre').textContent").strip()


def test_sums_are_those_of_the_records(mixed):
    _, trace, _ = mixed
    opened = _native.Trace(str(trace))
    steps = []
    access = _native.access(opened, most=3, columns=50, rows=20, progress=lambda *step: steps.append(step))
    columns = opened.columns(requests_only=True)
    moved = int(columns["size"].sum())
    for planes in [access["process_time"], *(drawn["heat"] for drawn in access["maps"])]:
        assert int(planes["reads"].sum() + planes["writes"].sum()) <= moved
    assert int(sum(access["process_time"][way].sum() for way in ("reads", "writes"))) == moved
    assert sum(process[way]["bytes"] for process in access["processes"] for way in ("reads", "writes")) == moved
    assert sum(size[way]["requests"] for size in access["sizes"] for way in ("reads", "writes")) == len(columns["size"])
    for drawn in access["maps"]:
        file = next(file for file in access["files"] if file["file"] == drawn["file"])
        for way in ("reads", "writes"):
            assert int(drawn["heat"][way].sum()) == file[way]["bytes"]
            assert int(drawn["sizes"][way].sum()) == file[way]["requests"]


def test_an_empty_run_has_a_page(browser, stripewise, tmp_path):
    (tmp_path / "file").touch()
    stripewise("trace", "-o", tmp_path / "none.trace", "--", "cat", tmp_path / "file")
    page = report(stripewise, tmp_path / "none.trace")
    browser.look(360)
    browser.open(page)
    assert browser.run(PROBLEMS) == []
    assert "nothing can be drawn" in browser.run("document.body.innerText")


def test_mistakes_are_named_and_leave_nothing(stripewise, mixed, tmp_path):
    emulated, trace, layout = mixed

    def fails(*arguments):
        done = stripewise("report", *arguments, check=False)
        assert done.returncode == 1
        return done.stderr

    page = tmp_path / "page.html"
    assert "no directory" in fails(trace, "-o", tmp_path / "none" / "page.html")
    assert "give one" in fails(trace, "-o", page, "--pool", emulated.file, "--cluster", emulated.file)
    assert "give one" in fails(trace, "-o", page, "--pool", emulated.file, "--layout", layout, "--planner", "auto")
    assert "name them with --cluster" in fails(trace, "-o", page, "--layout", layout)
    broken = tmp_path / "broken.layout"
    broken.write_text(layout.read_text().replace("round = [", "rund = [", 1))
    assert re.search(r"broken\.layout:\d+: ", fails(trace, "-o", page, "--pool", emulated.file, "--layout", broken))
    broken.write_bytes(b"\xff\xfe")
    assert "it is not text" in fails(trace, "-o", page, "--pool", emulated.file, "--layout", broken)
    assert not page.exists()
    assert not list(tmp_path.glob(".page.html.*"))


@pytest.mark.parametrize("name", ["page.gif", "page.PNGs", "page.html.txt", "page"])
def test_a_page_is_not_written_under_the_name_of_another_format(stripewise, tmp_path, name):
    log = EXAMPLES / "tests" / "input" / "sample-badost.darshan"
    refused = stripewise("report", log, "-o", name, check=False)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"error: {name}: a report is an HTML page, or a picture for a slide; "
        "name it with one of .html, .png, .svg, .pdf at its end\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".png", ".SVG", ".pdf"])
def test_a_picture_for_a_slide_is_16_to_9_and_tells_the_run(stripewise, mixed, tmp_path, suffix):
    emulated, trace, layout = mixed
    slide = tmp_path / f"slide{suffix}"
    stripewise("report", trace, "--pool", emulated.file, "--layout", layout, "-o", slide)
    content = slide.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", content[16:24]) == (2560, 1440)
    elif suffix == ".pdf":
        assert content.startswith(b"%PDF-") and b"%%EOF" in content[-32:]
    else:
        drawn = ElementTree.fromstring(content)
        assert (drawn.get("width"), drawn.get("height")) == ("1280", "720")
        words = " ".join("".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text"))
        (total,) = (run := sw.read(trace)).native.summaries([list(range(len(run.paths)))])
        assert f"{about_bytes(total['writes']['bytes'])} written" in words
        measured = run.job["bytes_per_s"]
        assert f"measured {mib_per_s(measured)} MiB/s" in words and "MiB/s become" in words
        assert "Servers" in words and "Bytes by request size" in words and "now" in words and "then" in words


def test_a_slide_of_a_log_with_hostile_names_and_of_an_empty_one_is_drawn(stripewise, tmp_path):
    log = tmp_path / "<&>.csv"
    log.write_text('file,op,offset,size\n"/data/<script>&\x1b[31m",write,0,4096\n')
    stripewise("report", log, "-o", tmp_path / "s.svg")
    shown = "".join(ElementTree.fromstring((tmp_path / "s.svg").read_bytes()).itertext())
    assert "<&>.csv" in shown and "<script>&" in shown and "\x1b" not in shown
    (tmp_path / "file").touch()
    stripewise("trace", "-o", tmp_path / "none.trace", "--", "cat", tmp_path / "file")
    stripewise("report", tmp_path / "none.trace", "-o", tmp_path / "s.svg")
    assert "No byte read or written" in (tmp_path / "s.svg").read_text()


def test_a_map_has_the_row_of_the_metadata_tier_above_its_axis():
    def stripes(*servers):
        return [{"server": server, "width_bytes": 4096} for server in servers]

    regions = [
        {"offset": 0, "round": ["meta:4KiB"], "stripes": stripes("meta")},
        {"offset": 4096, "round": ["hdd.0:4KiB", "ssd.0:4KiB"], "stripes": stripes("hdd.0", "ssd.0")},
    ]
    for tiers in (["hdd", "ssd"], ["hdd", "ssd", "meta"]):
        names = ["hdd.0", "ssd.0", *(["meta"] if "meta" in tiers else [])]
        facts = SimpleNamespace(load={"servers": [{"name": name} for name in names], "tiers": tiers})
        drawn = str(layout_map._map(facts, "a", regions, 8192))
        for svg in re.findall(r"<svg.*?</svg>", drawn, re.DOTALL):
            (height,) = re.findall(r'class="background"[^>]*d="M0.5,0.5h[\d.]+v([\d.]+)h', svg)
            bars = re.findall(r'd="M[\d.]+,([\d.]+)h[\d.]+v([\d.]+)h-[\d.]+Z"[^>]*fill="var\(--tier', svg)
            assert len(bars) == 3
            assert all(float(top) + float(tall) <= float(height) for top, tall in bars), svg


def test_the_metadata_tier_is_drawn_with_what_was_predicted():
    periods = [
        {"time_s": 1e9 + at, "served": 90, "names": 30, "waiting": 30 * (at % 3), "bytes": 368_640, "latency_s": 0.02,
         "load": 0.9, "esm": 0.6, "bls_esm": 0.9 + at % 3, "share": 0.5 ** (at % 5)}
        for at in range(12)
    ]  # fmt: skip
    drawn = [
        small_files.draw(SimpleNamespace(meta_load={"is_known": is_known, "periods": periods}))
        for is_known in (True, False)
    ]
    assert drawn[0].count("<figcaption>") == 2 and drawn[1].count("<figcaption>") == 1
    assert "BLS-ESM" in drawn[0] and "stripewise pool calibrate" in drawn[1]
    assert "the tier was busy 0.90 of its time at most" in drawn[0] and "6.2% of what directories hint" in drawn[0]
    names = [{**period, "served": period["names"]} for period in periods]
    assert small_files.draw(SimpleNamespace(meta_load={"is_known": True, "periods": names}))
    for nothing in (None, {"is_known": True, "periods": []}, {"is_known": False, "periods": names}):
        assert small_files.draw(SimpleNamespace(meta_load=nothing)) == ""
