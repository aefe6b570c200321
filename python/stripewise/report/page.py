"""The whole page, from its sections."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

from stripewise._native import __version__
from stripewise.report.facts import Facts
from stripewise.report.markup import Markup, join
from stripewise.report.sections import SECTIONS

PAGE = Markup("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title} · Stripewise</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{title}</h1><p>How this program used its files, by <code>stripewise report</code> {version}</p></header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main id="content" tabindex="-1">
{content}</main>
<footer><p>This page holds all it shows; it asks nothing of any network.</p></footer>
<script>{script}</script>
</body>
</html>
""")


def page(facts: Facts, progress: Callable[[int, int], None]) -> str:
    """The report as text; `progress` is called with the sections drawn and all of them."""
    drawn = []
    for number, section in enumerate(SECTIONS):
        progress(number, len(SECTIONS))
        drawn.append((section, section.draw(facts)))
    shown = [(section, content) for section, content in drawn if content]
    link = Markup('<li><a href="#{}">{}</a></li>')
    return PAGE.format(
        title=facts.source.name,
        version=__version__,
        # Both are files of this package.
        style=Markup(_resource("style.css")),
        script=Markup(_resource("page.js")),
        links=join(link.format(section.name, section.title) for section, _ in shown),
        content=join(content for _, content in shown),
    )


def _resource(name: str) -> str:
    return resources.files("stripewise.report").joinpath(name).read_text(encoding="utf-8")
