"""What the log does not say, after all that is drawn from it."""

from __future__ import annotations

from stripewise.report.facts import Facts
from stripewise.report.markup import Markup, items, paragraph, section

NAME, TITLE = "lacks", "What the log lacks"


def draw(facts: Facts) -> Markup:
    """Lacks, notes, and records that were lost."""
    said = [lack["words"] for lack in facts.about["lacks"]] + facts.about["notes"]
    if facts.access["lost"]:
        said.append(
            f"{facts.access['lost']:,} records were lost (killed processes or a full disk): figures are too low"
        )
    if not said:
        text = f"Nothing: it is a record by {facts.about['format']} of every request, its place, size and times."
        return section(NAME, TITLE, paragraph(text, kind="note"))
    introduction = paragraph(f"This is a log of {facts.about['format']}. Read the figures above with this in mind:")
    return section(NAME, TITLE, Markup('<div class="lacks">{}{}</div>\n').format(introduction, items(said)))
