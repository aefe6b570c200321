"""All results as one document: HTML with everything in it, and Markdown with its plots beside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stripewise.reproduce import words
from stripewise.reproduce.experiment import Result

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { border-bottom: 1px solid #ccc; padding: .3em .7em; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; }
td.figure { text-align: right; white-space: nowrap; }
ul.setup { color: #555; }
img { max-width: 100%; }
h2 { margin-top: 2.5em; }
"""


@dataclass(frozen=True)
class Page:
    """A result with its plot."""

    result: Result
    svg: str | None

    @property
    def heading(self) -> str:
        """`harl-fig7: HARL (He et al. 2015), Figure 7`."""
        experiment = self.result.experiment
        return f"{experiment.name}: {experiment.paper}, {experiment.figure}"


def write(directory: Path, pages: Sequence[Page], head: Sequence[str]) -> Path:
    """Writes `reproduce.html`, `reproduce.md` and one `NAME.svg` a plot; returns the first."""
    directory.mkdir(parents=True, exist_ok=True)
    for page in pages:
        if page.svg is not None:
            (directory / f"{page.result.experiment.name}.svg").write_text(page.svg, encoding="utf-8")
    (directory / "reproduce.md").write_text(_markdown(pages, head), encoding="utf-8")
    file = directory / "reproduce.html"
    file.write_text(_html(pages, head), encoding="utf-8")
    return file


TITLE = "The papers' experiments, reproduced"
LEGEND = (
    "simulated: at the paper's own scale; measured: real processes on a pool of emulated servers, at a reduced size; "
    "median (least to greatest); simulated as measured: the same size, and the network's time in the device's queue, "
    "as emulated servers have it"
)


def _html(pages: Sequence[Page], head: Sequence[str]) -> str:
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{html.escape(TITLE)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(TITLE)}</h1>",
        *(f"<p>{html.escape(line)}</p>" for line in [*head, LEGEND]),
        "<ul>",
        *(f'<li><a href="#{p.result.experiment.name}">{html.escape(p.heading)}</a></li>' for p in pages),
        "</ul>",
    ]
    for page in pages:
        result = page.result
        parts += [
            f'<h2 id="{result.experiment.name}">{html.escape(page.heading)}</h2>',
            f"<p>{html.escape(result.experiment.title)}</p>",
        ]
        parts += [_table(result), *_list(result.setup, "setup"), *_list(words.remarks(result), "remarks")]
        if page.svg is not None:
            image = base64.b64encode(page.svg.encode()).decode()
            parts.append(f'<p><img alt="plot of {result.experiment.name}" src="data:image/svg+xml;base64,{image}"></p>')
    return "\n".join([*parts, "</body></html>", ""])


def _table(result: Result) -> str:
    columns = words.used(result)
    head = "".join(f"<th>{html.escape(words.HEADINGS[column])}</th>" for column in columns)
    body = []
    for row in result.rows:
        cells = words.cells_of(row)
        figures = [(column, html.escape(cells[column])) for column in columns]
        kind = {column: ' class="figure"' if 0 < column < len(cells) - 1 else "" for column in columns}
        body.append("<tr>" + "".join(f"<td{kind[column]}>{text}</td>" for column, text in figures) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _list(lines: Sequence[str], kind: str) -> list[str]:
    items = [f"<li>{html.escape(line)}</li>" for line in lines]
    return [f'<ul class="{kind}">', *items, "</ul>"] if items else []


def _markdown(pages: Sequence[Page], head: Sequence[str]) -> str:
    lines = [f"# {TITLE}", ""]
    for line in [*head, LEGEND]:
        lines += [line, ""]
    for page in pages:
        result = page.result
        columns = words.used(result)
        lines += [f"## {page.heading}", "", result.experiment.title, ""]
        lines.append("| " + " | ".join(words.HEADINGS[column] for column in columns) + " |")
        lines.append("|" + "---|" * len(columns))
        for row in result.rows:
            cells = words.cells_of(row)
            lines.append("| " + " | ".join(cells[column].replace("|", "\\|") for column in columns) + " |")
        lines += ["", *(f"- {line}" for line in [*result.setup, *words.remarks(result)]), ""]
        if page.svg is not None:
            name = result.experiment.name
            lines += [f"![plot of {name}]({name}.svg)", ""]
    return "\n".join(lines)
