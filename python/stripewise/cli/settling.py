"""What the commands say that relieve a tier."""

from __future__ import annotations

from typing import Any

from stripewise.cli import console
from stripewise.terminal import name
from stripewise.units import about_bytes, counted, seconds


def report(step: dict[str, Any], *, everything: bool = False) -> None:
    """Says what leaves a tier, or would, and why."""
    landed, regions = step["leaving_landed"], step["leaving_regions"]
    what = [counted(landed, "file") + " that landed there"] if landed or not regions else []
    what += [counted(regions, "region")] if regions else []
    # A tier without a server is not 0 % full.
    if step["size_bytes"] or landed or regions:
        full = step["used_bytes"] / max(1, step["size_bytes"])
        console.result(
            f"{step['tier']}: {full:.0%} full, {about_bytes(step['needed_bytes'])} above its limit; "
            f"{' and '.join(what)} with {about_bytes(step['leaving_bytes'])} to leave, gain "
            f"{seconds(step['lost_gain_s'])} a period there; {counted(step['kept_hot'], 'hot file')} "
            f"{'stays' if step['kept_hot'] == 1 else 'stay'}"
        )
    staying = step.get("staying", [])
    for file in console.shown(staying, everything=everything):
        console.result(f"{name(file['path'])}: left for later: {name(file['why'])}")
    console.say_more(staying, "files stay", everything=everything)
    if "moved_files" in step:
        moved, copied = counted(step["moved_files"], "file"), about_bytes(step["copied_bytes"])
        console.result(f"{step['tier']}: moved {moved}, copied {copied}")
    elif step.get("copied_bytes"):
        console.result(f"{step['tier']}: copied {about_bytes(step['copied_bytes'])}")
    if "why" in step:
        console.result(f"{step['tier']}: nothing more moved: {step['why']}")
