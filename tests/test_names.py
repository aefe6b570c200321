"""A name of the Rust code means one thing."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PUBLIC_TYPE = re.compile(r"^ *pub(?:\([^)]*\))? +(?:unsafe +)?(?:struct|enum|trait|type|union) +(\w+)", re.MULTILINE)
# Types of one meaning.
MOST_REPEATS = 20


def public_types(sources: list[Path]) -> dict[str, list[str]]:
    """The public types (`pub`, `pub(crate)`, `pub(super)`) of `sources` by name, each as `file:line`."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        text = source.read_text()
        for match in PUBLIC_TYPE.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            found[match[1]].append(f"{source}:{line}")
    return found


def repeats(found: dict[str, list[str]]) -> int:
    """Definitions beyond the first of each name."""
    return sum(len(places) - 1 for places in found.values())


def test_a_public_type_has_a_name_of_its_own() -> None:
    found = public_types(sorted(ROOT.glob("crates/*/src/**/*.rs")))
    assert len(found) > 500
    shared = {name: places for name, places in found.items() if len(places) > 1}
    listing = "\n".join(f"{name}: {', '.join(places)}" for name, places in shared.items())
    assert repeats(found) <= MOST_REPEATS, f"name these types by what they are, in the field's own terms:\n{listing}"


def test_repeats_are_definitions_beyond_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.rs").write_text(
        "pub struct Place;\npub(crate) enum Kind {}\nstruct Private;\n// pub struct Place;\n"
    )
    (tmp_path / "b.rs").write_text(
        "mod inner {\n    pub(super) type Place = u8;\n}\npub unsafe trait Kind {}\nstruct Private;\n"
    )
    (tmp_path / "c.rs").write_text("pub trait Place {}\n")
    found = public_types(sorted(tmp_path.glob("*.rs")))
    assert {name: len(places) for name, places in found.items()} == {"Place": 3, "Kind": 2}
    assert repeats(found) == 3
