"""Each library has one set of features, whichever part is built: with two it is built twice, and all that uses it."""

import subprocess
from pathlib import Path

import pytest

from conftest import PATIENCE_S

ROOT = Path(__file__).parents[1]


def features(*selected: str) -> set[str]:
    """Libraries with their features, as Cargo builds them for the selected packages, their build scripts and tests."""
    command = ["cargo", "tree", "--locked", "--offline", "--prefix", "none", "--format", "{p} {f}", *selected]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    lines = {line.removesuffix(" (*)") for line in printed.splitlines()}
    return {line for line in lines if not line.startswith("stripewise-")}


@pytest.fixture(scope="module")
def of_all() -> set[str]:
    return features("--workspace", "--edges", "normal,build,dev")


@pytest.mark.parametrize("part", ["python", "preload", "mount", "bench", "agent"])
def test_a_part_alone_asks_for_what_all_ask_for(part: str, of_all: set[str]) -> None:
    alone = features("--package", f"stripewise-{part}", "--edges", "normal,build")
    assert len(alone) > 20
    assert not alone - of_all, "name these features in crates/features/Cargo.toml"
