"""HTML in which every text is escaped unless it was made here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

__all__ = ["Markup", "escape", "items", "join", "more", "paragraph", "section", "table"]


def join(parts: Iterable[Markup | str]) -> Markup:
    """The parts one after the other; plain text among them is escaped."""
    return Markup("").join(parts)


def paragraph(text: Markup | str, *, kind: str = "") -> Markup:
    """One paragraph; `kind` is a class of the style sheet."""
    return Markup('<p class="{}">{}</p>\n').format(kind, text) if kind else Markup("<p>{}</p>\n").format(text)


def items(texts: Iterable[Markup | str]) -> Markup:
    """A list."""
    return Markup("<ul>{}</ul>\n").format(join(Markup("<li>{}</li>").format(text) for text in texts))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str, *, left: int = 1) -> Markup:
    """A table that scrolls by itself where it is wider than the page; columns from `left` on are figures."""

    def cell(number: int, value: object) -> Markup:
        if number == 0:
            return Markup('<th scope="row">{}</th>').format(value)
        return Markup('<td class="n">{}</td>' if number >= left else "<td>{}</td>").format(value)

    head = join(
        Markup('<th scope="col" class="n">{}</th>' if number >= left else '<th scope="col">{}</th>').format(name)
        for number, name in enumerate(columns)
    )
    body = join(
        Markup("<tr>{}</tr>\n").format(join(cell(number, value) for number, value in enumerate(row))) for row in rows
    )
    return Markup(
        '<div class="scroll" role="region" tabindex="0" aria-label="{0}"><table><caption>{0}</caption>'
        "<thead><tr>{1}</tr></thead>\n<tbody>{2}</tbody></table></div>\n"
    ).format(caption, head, body)


def more(summary: str, content: Markup) -> Markup:
    """What is shown when it is asked for."""
    return Markup("<details><summary>{}</summary>\n{}</details>\n").format(summary, content)


def section(name: str, title: str, content: Markup) -> Markup:
    """One section of the page with its heading; `name` is its anchor."""
    return Markup(
        '<section id="{0}" aria-labelledby="{0}-title">\n<h2 id="{0}-title">{1}</h2>\n{2}</section>\n'
    ).format(name, title, content)
