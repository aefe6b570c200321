"""Who imports whom: the command line calls the Python API, which calls the packages below, which call `_native`.

No module imports one of a higher layer, nor another one of its own. Files of the bindings use each other in no circle.
"""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "python" / "stripewise"
BINDINGS = ROOT / "crates" / "python" / "src"

LAYERS = [
    {"_native"},
    # Words and places on this machine.
    {"units", "terminal", "mounts", "native_paths", "naming", "outputs", "scale_out"},
    # One subject each: documents of the compiled part as Python has them.
    {"hints", "pool", "layouts", "tables", "devices", "signing", "summing", "heading", "decided"},
    {"emulation", "launch", "places", "usage", "exporters"},
    {"advising", "surveying"},
    # What is made of all those below.
    {"optimize", "report", "reproduce"},
    # What `import stripewise` offers; the root itself is the package's own file.
    {"api"},
    {"stripewise"},
    {"cli", "demo"},
    {"__main__"},
]
"""Modules and packages directly below `stripewise`, the lowest first."""

SEEN_BY_THE_COMMAND_LINE = {"cli", "api", "stripewise", "units", "terminal"}
"""All that commands import: the API, and what words and tables on a terminal are made with."""


def height(part: str) -> int:
    """The number of the layer of a part."""
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def part_of(module: str) -> str:
    """The module or package directly below `stripewise` that `module` is of."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "stripewise"


def modules() -> dict[str, Path]:
    """All modules of the package, and the compiled one, by name."""
    found = {"stripewise._native": PACKAGE / "_native.pyi"}
    for path in PACKAGE.rglob("*.py"):
        names = path.relative_to(PACKAGE.parent).with_suffix("").parts
        # A page of the documentation that is a program is on its own.
        if names[1] != "pages":
            found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


def imported(text: str, known: dict[str, Path]) -> set[str]:
    """The modules of this package that a source text imports, wherever in it that stands."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole module"
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                found.add(whole if whole in known else str(node.module))
    return {name for name in found if name in known}


def wrong(module: str, target: str) -> str | None:
    """Why `module` may not import `target`, in words."""
    of, to = part_of(module), part_of(target)
    if of == to:
        return None
    if height(to) >= height(of):
        return f"{module} imports {target}, which is not below it"
    if of == "cli" and to not in SEEN_BY_THE_COMMAND_LINE:
        return f"{module} imports {target} past the API"
    return None


KNOWN = modules()


def test_every_part_has_a_layer():
    parts = {part_of(module) for module in KNOWN}
    layers = [part for layer in LAYERS for part in layer]
    assert sorted(layers) == sorted(parts)


@pytest.mark.parametrize("module", sorted(KNOWN.keys() - {"stripewise._native"}))
def test_imports_go_down(module):
    targets = imported(KNOWN[module].read_text(encoding="utf-8"), KNOWN)
    assert not (found := [why for target in sorted(targets) if (why := wrong(module, target))]), "\n".join(found)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("stripewise.cli.plan", "from stripewise import _native"),
        ("stripewise.cli.plan", "from stripewise._native import StripewiseError"),
        ("stripewise.cli.plan", "def plan():\n    from stripewise.exporters.lustre import Lustre"),
        ("stripewise.cli.plan", "import stripewise.pool"),
        ("stripewise.api.plan", "from stripewise.cli import console"),
        ("stripewise.api.plan", "from stripewise import StripewiseError"),
        ("stripewise.report.page", "from stripewise.reproduce import plot"),
        ("stripewise.units", "from stripewise.pool import Pool"),
    ],
)
def test_an_import_that_goes_up_or_past_is_seen(module, text):
    assert any(wrong(module, target) for target in imported(text, KNOWN))


def uses(text: str, files: set[str]) -> set[str]:
    """The files of the bindings that one of them uses."""
    text = re.sub(r"//.*", "", text)
    grouped = re.findall(r"use crate::\{([^}]*)\}", text)
    names = {name for group in grouped for name in re.findall(r"(?:^|,)\s*(\w+)", group)}
    return (names | set(re.findall(r"\bcrate::(\w+)", text))) & files


def test_files_of_the_bindings_use_each_other_in_no_circle():
    texts = {path.stem: path.read_text(encoding="utf-8") for path in BINDINGS.glob("*.rs") if path.stem != "lib"}
    graph = {name: uses(text, texts.keys()) for name, text in texts.items()}
    assert graph["report"] >= {"convert", "error", "trace"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" uses ".join(error.args[1]))
