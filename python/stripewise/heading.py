"""What stands above every result: the job, what it moved and how fast, and the same as the model has it."""

from __future__ import annotations

from typing import TypedDict

from stripewise import _native
from stripewise.units import about_bytes, counted, mib_per_s, ratio, seconds

APART = 3
"""Servers fitted apart that are named."""


class NowThen(TypedDict):
    """What a job has under the present layouts and under others, as every command tells it."""

    measured_bytes_per_s: float | None
    """`None` where the log does not time requests."""
    now_bytes_per_s: float | None
    """Predicted; `None` where neither times nor servers are known."""
    then_bytes_per_s: float | None
    """`None` where no gain is claimed, or no file gets another layout."""
    gain: _native.AdviseGain | None
    factor: float | None
    """Time under the present layouts, predicted over measured."""
    refused: str | None
    """Why no gain is claimed."""
    how: str
    """How the predicted figures were got."""


def now_then(document: _native.AdviceDocument) -> NowThen:
    """The figures of advice, which those of plans, simulations and reports are, too."""
    total, reproduced = document["total"], document["reproduced"]
    return {
        "measured_bytes_per_s": document["job"]["bytes_per_s"],
        "now_bytes_per_s": total["present_bytes_per_s"] if _is_predicted(document) else None,
        "then_bytes_per_s": total["recommended_bytes_per_s"] if total["change"] else None,
        "gain": total["gain"] if total["change"] else None,
        "factor": None if reproduced is None else reproduced["factor"],
        "refused": None if reproduced is None else reproduced["refused"],
        "how": _how(document),
    }


def heading(document: _native.AdviceDocument) -> list[str]:
    """Lines of words: job, traffic, share of the run, and the prediction beside it."""
    return job_heading(document["job"]) + predicted_lines(document)


def predicted_lines(document: _native.AdviceDocument) -> list[str]:
    """The prediction of the present, for a place below the lines of the job."""
    return [f"predicted: {_predicted(document)}"] if document["job"]["requests"] else []


def job_heading(job: _native.AdviseJob) -> list[str]:
    """The lines of the job alone: what the log says, without a prediction."""
    lines = [f"job: {_job(job)}", f"moved: {_moved(job)}"]
    if job["io_share"] is not None:
        lines.append(f"I/O: {_share(job)}")
    return lines


def then(document: _native.AdviceDocument) -> str | None:
    """What the recommended layouts make of that; `None` where nothing should change."""
    total, job = document["total"], document["job"]
    if not total["change"]:
        return None
    gain, of_run = total["gain"], total["run_gain"]
    now = total["present_bytes_per_s"]
    text = (
        f"{ratio(gain['ratio'])} as fast ({ratio(gain['low'])} to {ratio(gain['high'])} in 95 of 100 cases): "
        f"{mib_per_s(now)} MiB/s become {mib_per_s(total['recommended_bytes_per_s'])}, both predicted"
    )
    if of_run is None or job["slowest_share"] is None:
        return text
    busy = f"its slowest process reads and writes for {_percent(job['slowest_share'])} of it"
    return f"{text}; the run {ratio(of_run['ratio'])} at most, as {busy}"


def unchanged(document: _native.AdviceDocument) -> str:
    """Why no other layout is advised, where none is."""
    reproduced, cluster, files = document["reproduced"], document["cluster"], document["files"]
    if document["lacking"] is not None:
        return document["lacking"]
    if reproduced is not None and reproduced["refused"] is not None:
        return "nothing is said, as the present is not reproduced (above)"
    if cluster["found"] and sum(tier["servers"] for tier in cluster["tiers"]) == 1:
        return "the log shows one server alone, so there is none to compare with: name all with --cluster"
    if files and not any(file["named"] for file in files):
        return (
            "none is looked for: the files have no names that a layout file or a command could use, or are not on "
            "these servers"
        )
    return "leave it as it is: none is faster beyond doubt"


def then_line(document: _native.AdviceDocument) -> str:
    """What layouts that were given make of it, or why that is not said: a line."""
    told = then(document)
    if told is not None:
        return f"then: {told}"
    reproduced = document["reproduced"]
    refused = reproduced is not None and reproduced["refused"] is not None
    return "then: not said, as the present is not reproduced" if refused else "then: the same, no layout changes"


def _job(job: _native.AdviseJob) -> str:
    command = job["command"] or "a program without a name"
    whose = [] if job["user"] is None else [f"user {job['user']}"]
    whose += [] if job["id"] is None else [f"job {job['id']}"]
    whose.append(f"{job['processes']:,} process{'' if job['processes'] == 1 else 'es'}")
    if job["nodes"] is not None:
        whose.append(f"on {counted(job['nodes'], 'node')}")
    text = f"{_shortened(command)} ({', '.join(whose)})"
    if job["run_s"] is None:
        return text
    return text + f", ran {seconds(job['run_s'])}" + ("" if job["run_known"] else " from its first request to its last")


def _moved(job: _native.AdviseJob) -> str:
    copied = ""
    if job["copied_bytes"]:
        count = about_bytes(job["copied_bytes"])
        copied = f"; beside that the kernel copied {count} by itself (copy_file_range, sendfile)"
    if not job["requests"]:
        return f"nothing: no file was read or written{copied}"
    parts = [
        f"{about_bytes(count)} {what}"
        for count, what in ((job["read_bytes"], "read"), (job["written_bytes"], "written"))
        if count
    ]
    text = f"{' and '.join(parts) or '0 B'} in {counted(job['requests'], 'request')}"
    if job["bytes_per_s"] is None or job["slowest_s"] is None:
        return text + copied
    took = f"(its slowest process took {seconds(job['slowest_s'])})"
    return f"{text}, measured {mib_per_s(job['bytes_per_s'])} MiB/s {took}{copied}"


def _share(job: _native.AdviseJob) -> str:
    share, run_s = job["io_share"] or 0.0, job["run_s"] or 0.0
    text = f"{_percent(share)} of the run time of a process on average"
    if 0 < run_s < job["meta_s"]:
        # Darshan adds up the opens of all threads of a process.
        took = f"opens and the like {seconds(job['meta_s'])}, longer than the run: of threads at once, or wrong"
        text = f"data {_percent(min(job['data_s'] / run_s, 1.0))} of the run time of a process on average ({took})"
        return text
    parts = [
        f"{what} {seconds(took)}"
        for what, took in (("data", job["data_s"]), ("opens and the like", job["meta_s"]))
        if took
    ]
    text += f" ({', '.join(parts)})" if parts and run_s else ""
    slowest = job["slowest_share"] or 0.0
    return text + (f", {_percent(slowest)} of the slowest" if slowest > 1.2 * share else "")


def _predicted(document: _native.AdviceDocument) -> str:
    if not _is_predicted(document):
        return _how(document)
    text = f"{mib_per_s(document['total']['present_bytes_per_s'])} MiB/s for the same, {_how(document)}"
    reproduced = document["reproduced"]
    if reproduced is None:
        return text
    if reproduced["profiles"] and reproduced["memory_share"] >= 0.01:
        share = _percent(reproduced["memory_share"])
        text += f"; {share} of the bytes moved at the speed of memory (page cache), which no layout changes"
    if reproduced["refused"] is not None:
        text += f". NOT reproduced, so no gain is claimed: {reproduced['refused']}"
    return text


def _is_predicted(document: _native.AdviceDocument) -> bool:
    """Servers that are neither known nor fitted predict nothing."""
    return document["reproduced"] is not None or document["lacking"] is None


def _how(document: _native.AdviceDocument) -> str:
    reproduced = document["reproduced"]
    if reproduced is None and not _is_predicted(document):
        return "nothing, as the log neither times requests nor names its servers"
    if reproduced is None:
        times = document["job"]["bytes_per_s"]
        why = "does not time requests" if times is None else "is older than the layouts that its files have now"
        return f"simulated with servers as they are described, as the log {why}"
    if reproduced["profiles"]:
        tiers = {tier["name"] for tier in document["cluster"]["tiers"]}
        names = dict.fromkeys(profile["tier"] for profile in reproduced["profiles"])
        apart = [name for name in names if name not in tiers]
        more = f" and {len(apart) - APART} more" if len(apart) > APART else ""
        by_themselves = f", {' and '.join(apart[:APART])}{more} apart from the others" if apart else ""
        changes = sorted({begin for of in reproduced["profiles"] if (begin := of["from_s"]) is not None})
        when = " and ".join(seconds(begin) for begin in changes)
        by_stretch = f", and anew from {when} on, where they were faster or slower" if changes else ""
        return f"simulated with servers fitted to the log{by_themselves}{by_stretch}"
    return "all of it from the memory of the nodes (page cache), which no layout changes"


def _percent(share: float) -> str:
    if 0 < share < 0.01:
        return "under 1 %"
    return f"{100 * share:.0f} %"


def _shortened(text: str, most: int = 100) -> str:
    """A command line that fits: its middle is left out, control characters are written out."""
    plain = text if text.isprintable() else text.encode("unicode_escape").decode()
    return plain if len(plain) <= most else f"{plain[: most // 2]}…{plain[-most // 2 + 1 :]}"
