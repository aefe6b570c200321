"""The pages hang together: links outside docs/, lists and tables that both renderers take, types of the glossary.

Links between the pages of docs/ are checked by `make site`, which `make lint` runs.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OUTSIDE = sorted(ROOT.glob("*.md"))
PAGES = [*OUTSIDE, *sorted((ROOT / "docs").glob("*.md"))]


def prose(page):
    """The lines of a page with their numbers, without those of code blocks."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = [line.lstrip("#").strip() for _, line in prose(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: page.name)
def test_links_of_pages_outside_the_site_lead_somewhere(page):
    for number, line in prose(page):
        for link in re.findall(r"\]\(([^)\s]+)\)", line):
            if link.startswith(("https://", "http://")):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name}:{number}: there is no {path}"
            assert not anchor or anchor in anchors(target), f"{page.name}:{number}: {path} has no heading #{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_and_tables_begin_after_an_empty_line(page):
    """Otherwise the site shows them as one paragraph; GitHub does not mind."""
    before = ""
    for number, line in prose(page):
        item = re.match(r"([-*]|\d+\.) ", line)
        begins = (item and not before.startswith(" ") and not re.match(r"([-*]|\d+\.) ", before)) or (
            line.startswith("|") and not before.startswith("|")
        )
        if begins:
            assert not before or before.startswith(("#", "<!--")), f"{page.name}:{number}: an empty line is missing"
        before = line


@pytest.mark.parametrize("broken", ["nothing.md", "fsck.md#nothing"])
def test_a_link_that_leads_nowhere_fails_the_site(broken, tmp_path):
    pytest.importorskip("mkdocs", reason="requirements/dev.txt has it: make setup")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Index\n\n[a page](fsck.md), [another]({broken})\n")
    (tmp_path / "docs" / "fsck.md").write_text("# Page\n")
    settings = (tmp_path / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(re.sub(r"^nav:\n(?:[ ].*\n)+", "", settings, flags=re.MULTILINE))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"],
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 1 and broken in warnings[0], done.stderr


def test_the_types_that_the_glossary_names_exist():
    named = re.findall(r"\(`([a-z]+): ([A-Za-z]+)`\)", (ROOT / "docs" / "glossary.md").read_text())
    assert len(named) > 15
    for crate, name in named:
        sources = "".join(file.read_text() for file in (ROOT / "crates" / crate / "src").rglob("*.rs"))
        assert re.search(rf"pub (struct|enum|trait) {name}\b", sources), f"crates/{crate} has no type {name}"


def test_what_contributors_are_told_to_run_exists():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:crates|python|tests)/[\w/.-]+)`", page) + re.findall(r"\btests/test_\w+\.py", page)
    assert len(named) > 20
    for path in named:
        assert (ROOT / path).exists(), f"there is no {path}"
    for command in re.findall(r"`cargo test ([^`]+)`", page):
        crates = re.findall(r"-p stripewise-([\w-]+)", command)
        for test in set(re.findall(r"--test (\w+)", command)) - {"NAME"}:
            places = [ROOT / "crates" / crate / "tests" / name for crate in crates for name in (f"{test}.rs", test)]
            assert any(place.exists() for place in places), f"{command}: there is no test {test}"
        assert all((ROOT / "crates" / crate).is_dir() for crate in crates if crate != "CRATE"), command
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z][a-z-]+)\b", page):
        assert re.search(rf"^{target}\b.*:", makefile, flags=re.MULTILINE), f"there is no make {target}"
