"""Commands that set the layouts, to copy."""

from __future__ import annotations

import shlex

from stripewise.report.facts import Facts
from stripewise.report.markup import Markup, items, paragraph, section

NAME, TITLE = "commands", "Commands"
MOST_BYTES = 200_000
"""A script that is longer is left to `stripewise export`."""


def draw(facts: Facts) -> Markup:
    """The layout file, and the script of the file system or how the pool gets it."""
    if not facts.changes:
        return Markup("")
    source, servers = shlex.quote(str(facts.source)), facts.servers
    layout = "new.layout" if facts.layout is None else shlex.quote(str(facts.layout))
    of = "" if servers.file is None else f" --cluster {shlex.quote(str(servers.file))}"
    first = f"stripewise advise {source}{of} -o {layout}\n" if facts.layout is None else ""
    if servers.is_pool:
        content = paragraph("Files of the pool are moved while they can be read and written:")
        content += _block("pool", first + f"stripewise apply {layout} --pool {shlex.quote(str(servers.file))}\n")
        return section(NAME, TITLE, content)
    if facts.native is None:
        content = paragraph(
            "Native commands need the servers by name: describe them in a cluster file; "
            "`stripewise help advise` has one to copy."
        )
        return section(
            NAME, TITLE, content + _block("export", first + f"stripewise export {layout} --cluster C.toml\n")
        )
    exported = facts.native.exported
    script = exported.script()
    if len(script) > MOST_BYTES:
        content = paragraph(f"The script has {len(script):,} characters: these write it to a file.")
        return section(NAME, TITLE, content + _block("export", f"{first}stripewise export {layout}{of} -o set.sh\n"))
    content = paragraph(f"For {exported.title}. It takes for granted:") + items(facts.native.assumed)
    if exported.losses:
        content += paragraph("What the file system cannot express as it was planned:") + items(exported.losses)
    if exported.refused:
        content += paragraph("What it cannot express at all:") + items(exported.refused)
    return section(NAME, TITLE, content + _block("script", script))


def _block(name: str, text: str) -> Markup:
    return Markup(
        '<pre id="{0}-text" tabindex="0" role="region" aria-label="Commands"><code>{1}</code></pre>\n'
        '<p><button type="button" hidden data-copies="{0}-text" data-tells="{0}-told">Copy the commands</button>'
        '<span class="told" id="{0}-told" role="status"></span></p>\n'
    ).format(name, text)
