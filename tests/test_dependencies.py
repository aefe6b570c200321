"""What `pip install .` brings is what the package imports."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "python" / "stripewise"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What is asked for by an option, or by the demo of the checkout, has an extra of its own.
EXTRAS = {"scale_out.py": "dask", "demo/program.py": "dev"}


def names(requirements):
    return {re.match(r"[\w-]+", requirement)[0].lower().replace("_", "-") for requirement in requirements}


def imported(node):
    """Top names of all modules that are imported below `node`, but not for the type checker alone."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def test_every_import_is_of_a_declared_dependency():
    distributions = packages_distributions()
    seen = set()
    for file in sorted(PACKAGE.rglob("*.py")):
        name = str(file.relative_to(PACKAGE))
        declared = names(PROJECT["dependencies"])
        if name in EXTRAS:
            declared |= names(PROJECT["optional-dependencies"][EXTRAS[name]])
        for module in set(imported(ast.parse(file.read_text()))) - {"stripewise", *sys.stdlib_module_names}:
            of = names(distributions[module])
            assert of & declared, f"{name} imports {module}, which no dependency of pyproject.toml brings"
            seen |= of & declared
    assert names(PROJECT["dependencies"]) <= seen, "a dependency that nothing imports"


def test_the_pinned_versions_hold_every_dependency():
    for file in ("runtime.txt", "dev.txt"):
        pinned = names(re.findall(r"^[\w-]+==", (ROOT / "requirements" / file).read_text(), flags=re.MULTILINE))
        assert names(PROJECT["dependencies"]) <= pinned, file
