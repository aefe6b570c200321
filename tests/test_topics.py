"""`stripewise help`: the pages of docs/, from the installed package."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PATIENCE_S

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


def test_topics_are_listed_with_their_titles(stripewise):
    lines = stripewise("help").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [page.stem for page in PAGES]
    assert all(page.read_text().splitlines()[0][2:] in line for page, line in zip(PAGES, lines, strict=True))


@pytest.mark.parametrize("topic", ["signature", "docs/signature.md", "scale-out"])
def test_a_topic_is_its_page(stripewise, topic):
    page = ROOT / "docs" / f"{Path(topic).stem}.md"
    assert stripewise("help", topic).stdout == page.read_text()


@pytest.mark.parametrize("topic", ["nothing", "../README", "", "docs/../../README.md"])
def test_no_other_file_is_a_topic(stripewise, topic):
    refused = stripewise("help", topic, check=False)
    assert refused.returncode == 1
    assert refused.stderr == f"error: there is no topic '{topic}'; `stripewise help` lists them\n"
    assert refused.stdout == ""


def test_pages_that_messages_name_are_topics():
    named = set()
    for kind in ("python/**/*.py", "crates/*/src/**/*.rs"):
        for file in ROOT.glob(kind):
            named |= set(re.findall(r"stripewise help ([a-z][a-z-]+)|docs/([a-z-]+)\.md", file.read_text()))
    topics = {first or second for first, second in named}
    assert {"advise", "signature"} <= topics
    assert topics <= {page.stem for page in PAGES}


def test_the_pages_are_in_the_package(tmp_path):
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "egg_info",
        "--egg-base",
        tmp_path,
        "build_py",
        "--build-lib",
        tmp_path,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        assert (tmp_path / "stripewise" / "pages" / page.name).read_text() == page.read_text()
