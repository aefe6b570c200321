"""No two source files of a crate need each other.

A file needs another when its code names something that the other defines. Re-exports are followed to the definition:
they neither make a circle nor hide one. Tests, and modules that only tests declare, do not count. Methods are not seen,
since no path names their file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CRATES = Path(__file__).parents[1] / "crates"

# Comments and what stands between quotes, both of which may look like code.
NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|r(?P<hashes>\#*)"(?s:.*?)"(?P=hashes)|"(?:\\.|[^"\\])*"|'(?:\\[^\n]+?|[^\\'\n])'""", re.S
)
TEST_ONLY = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*")
DECLARED = re.compile(r"\b(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")
INLINE = re.compile(r"\bmod\s+(\w+)\s*\{")
USE = re.compile(r"\b(?:pub(?:\(([^)]*)\))?\s+)?use\s+([^;]+);")
DEFINED = re.compile(r"\b(?:fn|struct|enum|trait|type|const|static(?:\s+mut)?|union|macro_rules!)\s+([A-Za-z_]\w*)")
PATH = re.compile(r"(?<![\w:$])(?:\$crate|[A-Za-z_]\w*)(?:\s*::\s*[A-Za-z_]\w*)+")
WORD = re.compile(r"[A-Za-z_]\w*")

Module = tuple[str, ...]


def end_of_item(code: str, start: int) -> int:
    """Where the item that begins at `start` ends: after its `;`, its `,` or its braces."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] in "{[(":
            depth += 1
        elif code[at] in "}])":
            depth -= 1
            if depth <= 0 and code[at] == "}":
                return at + 1
        elif code[at] in ";," and depth == 0:
            return at + 1
    return len(code)


def blank(text: str) -> str:
    """As many lines with nothing on them, so that the numbers of the lines after them stay."""
    return re.sub(r"[^\n]", " ", text)


def leaves(tree: str) -> Iterator[tuple[str, str]]:
    """The paths of a `use`, each with the name under which the file knows it."""
    head, brace, rest = tree.partition("{")
    if not brace:
        path, _, alias = re.sub(r"\s+", " ", tree).strip().partition(" as ")
        path = path.replace(" ", "")
        if path:
            path = path.removesuffix("::self")
            yield path, alias or path.rsplit("::", 1)[-1]
        return
    depth, part = 0, ""
    for character in rest[: rest.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if part.strip():
                yield from leaves(head.strip() + part.strip())
            part = ""
        else:
            part += character


@dataclass
class Source:
    """What a file says about itself."""

    path: Path
    code: str = ""
    children: set[str] = field(default_factory=set)
    """Modules that it declares."""
    only_for_tests: set[str] = field(default_factory=set)
    """Of these, those for tests."""
    defines: set[str] = field(default_factory=set)
    passes_on: dict[str, str] = field(default_factory=dict)
    """What its `use` brings in, for itself and for others: the name and its path; `*PATH` for a whole module."""

    @classmethod
    def read(cls, path: Path) -> Source:
        code = NO_CODE.sub(lambda found: blank(found[0]), path.read_text())
        source = cls(path)
        while found := TEST_ONLY.search(code):
            end = end_of_item(code, found.end())
            source.only_for_tests.update(DECLARED.findall(code[found.end() : end]))
            code = code[: found.start()] + blank(code[found.start() : end]) + code[end:]
        source.code = code
        source.children = set(DECLARED.findall(code))
        source.defines = set(DEFINED.findall(code)) | set(INLINE.findall(code))
        for found in USE.finditer(code):
            for named, name in leaves(found[2]):
                source.passes_on["*" + named if name == "*" else name] = named.removesuffix("::*")
        return source


class Crate:
    """The files of a crate as modules, and which needs which."""

    def __init__(self, src: Path) -> None:
        self.src = src
        self.modules: dict[Module, Source] = {}
        for path in sorted(src.rglob("*.rs")):
            module = path.relative_to(src).with_suffix("").parts
            module = module[:-1] if module[-1] in ("mod", "lib", "main") else module
            self.modules[module] = Source.read(path)
        for module, source in list(self.modules.items()):
            for child in source.only_for_tests:
                self.modules.pop((*module, child), None)

    def absolute(self, module: Module, path: str) -> list[str] | None:
        """A path as one from the root of the crate; None when it leads out of the crate."""
        parts = re.sub(r"\s", "", path).split("::")
        if parts[0] in ("crate", "$crate"):
            return parts[1:]
        base = list(module)
        if parts[0] in ("self", "super"):
            while parts and parts[0] in ("self", "super"):
                if parts.pop(0) == "super":
                    base = base[:-1]
            return base + parts
        source = self.modules[module]
        if parts[0] in source.children:
            return base + parts
        imported = source.passes_on.get(parts[0], "")
        if not imported or imported.split("::")[0] == parts[0]:
            return None
        named = self.absolute(module, imported)
        return None if named is None else named + parts[1:]

    def home(self, parts: list[str], seen: frozenset[tuple[str, ...]] = frozenset()) -> Module | None:
        """The module whose file defines what a path from the root names."""
        module: Module = ()
        at = 0
        while at < len(parts) and (*module, parts[at]) in self.modules:
            module, at = (*module, parts[at]), at + 1
        if module not in self.modules or tuple(parts) in seen:
            return None
        seen |= {tuple(parts)}
        source = self.modules[module]
        if at == len(parts) or parts[at] in source.defines:
            return module
        name, rest = parts[at], parts[at + 1 :]
        if name in source.children:
            # Of another crate, by its path.
            return None
        if name in source.passes_on:
            named = self.absolute(module, source.passes_on[name])
            return None if named is None else self.home(named + rest, seen)
        for star, path in source.passes_on.items():
            named = self.absolute(module, path) if star.startswith("*") else None
            found = named is not None and self.home([*named, name, *rest], seen)
            if found and name in self.modules[found].defines:
                return found
        return module

    def needs(self) -> dict[Module, dict[Module, int]]:
        """For every module those that it needs, each with the line that first says so."""
        graph: dict[Module, dict[Module, int]] = {}
        for module, source in self.modules.items():
            needed = graph.setdefault(module, {})
            for path, line in self.paths(module, source):
                parts = self.absolute(module, path)
                home = None if parts is None else self.home(parts)
                if home is not None and home != module:
                    needed.setdefault(home, line)
        return graph

    def paths(self, module: Module, source: Source) -> Iterator[tuple[str, int]]:
        """Every path that the code of a file names, with its line."""
        code = source.code
        for pattern in (USE, DECLARED):
            for found in pattern.finditer(source.code):
                code = code[: found.start()] + blank(found[0]) + code[found.end() :]
        words = set(WORD.findall(code))
        for found in USE.finditer(source.code):
            line = source.code.count("\n", 0, found.start()) + 1
            for path, name in leaves(found[2]):
                parts = self.absolute(module, path)
                # What is only passed on is not needed here; of a module, what the paths through it name.
                if name == "*" or (name in words and (parts is None or tuple(parts) not in self.modules)):
                    yield path.removesuffix("::*"), line
        for found in PATH.finditer(code):
            yield found[0], code.count("\n", 0, found.start()) + 1

    def circles(self) -> list[list[Module]]:
        """The sets of modules each of which needs every other, by way of others too."""
        graph = self.needs()

        def reached(start: Module) -> set[Module]:
            seen: set[Module] = set()
            ahead = [start]
            while ahead:
                for other in graph[ahead.pop()]:
                    if other not in seen:
                        seen.add(other)
                        ahead.append(other)
            return seen

        reach = {module: reached(module) for module in graph}
        circles = {
            tuple(sorted(other for other in reach[module] if module in reach[other]))
            for module in graph
            if module in reach[module]
        }
        return [list(circle) for circle in sorted(circles)]

    def told(self, circle: list[Module]) -> list[str]:
        """What each file of a circle needs of the others, with the lines that say so."""
        graph = self.needs()
        return [
            f"  {self.modules[module].path}:{line} needs {self.modules[other].path.relative_to(self.src)}"
            for module in circle
            for other, line in sorted(graph[module].items())
            if other in circle
        ]


# Circles that stay: crate, modules, why. Only where the files are parts of one type.
ONE_TYPE: list[tuple[str, set[str], str]] = []


def wrong(name: str, crate: Crate, stay: list[set[str]]) -> list[str]:
    """The circles of a crate that are not to `stay`, each with where it is; those of `stay` that are none."""
    circles = {frozenset("::".join(module) for module in circle): circle for circle in crate.circles()}
    said = [
        f"crates/{name}: no circle, take it off ONE_TYPE: {sorted(one)}"
        for one in stay
        if frozenset(one) not in circles
    ]
    for modules, circle in circles.items():
        if modules not in stay:
            said += [f"crates/{name}: a circle of {len(circle)} files:", *crate.told(circle)]
    return said


def test_no_two_files_of_a_crate_need_each_other() -> None:
    said = []
    for directory in sorted(CRATES.iterdir()):
        stay = [modules for crate, modules, _ in ONE_TYPE if crate == directory.name]
        said += wrong(directory.name, Crate(directory / "src"), stay)
    assert not said, "\n".join(said)


def made_up(root: Path, files: dict[str, str]) -> Crate:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Crate(root)


LIB = "mod a;\nmod b;\nmod dir;\npub use b::B;\n"


def test_a_circle_is_found_through_a_re_export_and_named_with_its_lines(tmp_path: Path) -> None:
    crate = made_up(
        tmp_path,
        {
            "lib.rs": LIB,
            "a.rs": "use crate::B;\npub struct A(B);\n",
            "b.rs": "pub struct B;\n\nfn f() {\n    crate::dir::g();\n}\n",
            "dir/mod.rs": "mod inner;\npub use inner::g;\n",
            "dir/inner.rs": "use super::super::a;\npub fn g() { let _: Option<a::A> = None; }\n",
        },
    )
    circle = ["a", "b", "dir::inner"]
    assert [["::".join(module) for module in found] for found in crate.circles()] == [circle]
    said = "\n".join(wrong("x", crate, []))
    for line in ("a.rs:1 needs b.rs", "b.rs:4 needs dir/inner.rs", "dir/inner.rs:2 needs a.rs"):
        assert line in said
    assert not wrong("x", crate, [set(circle)])
    # A circle that was larger, or is none any more, is taken off the list.
    assert wrong("x", crate, [{*circle, "dir"}]) and wrong("x", crate, [set(circle), {"dir"}])


def test_what_makes_no_circle(tmp_path: Path) -> None:
    crate = made_up(
        tmp_path,
        {
            # It declares and passes on, and what its own code names is below it.
            "lib.rs": LIB + "fn main() { a::a(); }\n",
            "a.rs": "use crate::b::{self, B};\npub fn a() -> B { b::b() }\n#[cfg(test)]\nmod tests { use super::*; }\n",
            # Comments, strings and code for tests may name anything.
            "b.rs": """\
pub struct B; // crate::a::a
pub fn b() -> B { let _ = "crate::a::a"; let _ = ('"', r#"crate::a::a()"#); B }
#[cfg(test)]
mod tests {
    use crate::a::a;
}
#[cfg(test)]
use crate::a as of_tests;
""",
            "dir/mod.rs": "mod child;\n#[cfg(test)]\nmod tests;\npub struct Parent;\npub use child::Child;\n",
            "dir/child.rs": "use super::Parent;\npub struct Child(Parent);\n",
            "dir/tests.rs": "use crate::a::a;\n",
        },
    )
    assert ("dir", "tests") not in crate.modules
    assert crate.circles() == []
    assert crate.needs()["dir", "child"] == {("dir",): 1}


def test_a_parent_that_uses_its_child_is_in_a_circle_with_it(tmp_path: Path) -> None:
    crate = made_up(
        tmp_path,
        {
            "lib.rs": "mod dir;\n",
            "dir/mod.rs": "mod child;\npub struct Parent;\nfn f() { child::g(); }\n",
            "dir/child.rs": "use super::*;\npub fn g() -> Parent { Parent }\n",
        },
    )
    assert crate.circles() == [[("dir",), ("dir", "child")]]
