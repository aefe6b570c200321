"""Comments and messages name the component that acts and the quantity that is meant: some words hide both."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What to write instead: "no process", "another user", "the next writer", "for this time", "this many".
HIDING = re.compile(r"\b(?:[Nn]obody|[Ss]omebody|[Ww]hoever|[Ss]o (?:long|many)|[Hh]imself)\b")
# A person is not the subject: a program, a process or a user is.
PERSON = re.compile(r"(?:\b(?:he|him|his)|\bHe(?! et al\.))\b")
COMMENT = re.compile(r"^\s*(?://[/!]?|#) .*|\s// .*", re.MULTILINE)
SUFFIXES = {".rs", ".py", ".md", ".sh"}


def sources() -> list[Path]:
    """Rust, Python, shell and Markdown of the tree, but not this file."""
    roots = [ROOT / name for name in ("benches", "crates", "docs", "python", "requirements", "tests")]
    found = [file for root in roots for file in root.rglob("*") if file.suffix in SUFFIXES]
    return sorted({*found, *ROOT.glob("*.md")} - {Path(__file__)})


def hidden(text: str, suffix: str) -> list[tuple[int, str]]:
    """Lines of `text` that have such a word: number and word."""
    found = [(match.start(), match[0]) for match in HIDING.finditer(text)]
    passages = [(0, text)] if suffix == ".md" else [(match.start(), match[0]) for match in COMMENT.finditer(text)]
    for start, passage in passages:
        found += [(start + match.start(), match[0]) for match in PERSON.finditer(passage)]
    return sorted((text.count("\n", 0, at) + 1, word) for at, word in found)


def test_sentences_name_what_acts() -> None:
    files = sources()
    assert len(files) > 500
    found = [
        f"{file.relative_to(ROOT)}:{line}: {word}"
        for file in files
        for line, word in hidden(file.read_text(), file.suffix)
    ]
    assert not found, "name the component, or the number:\n" + "\n".join(found)


def test_the_words_are_found_where_they_stand() -> None:
    code = (
        '/// Nobody writes it.\nfn f() {} // as he does\nlet he = "so many";\n//! He et al. have it.\n//! He has it.\n'
    )
    assert hidden(code, ".rs") == [(1, "Nobody"), (2, "he"), (3, "so many"), (5, "He")]
    assert hidden("Whoever writes,\nhis file grows.\n", ".md") == [(1, "Whoever"), (2, "his")]
    assert hidden("NOBODY = 65534  # the user without rights\n", ".py") == []
