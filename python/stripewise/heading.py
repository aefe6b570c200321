"""What stands above every result: the job, what it moved and how fast, and the same as the model has it."""

from __future__ import annotations

from stripewise import _native
from stripewise.units import about_bytes, counted, mib_per_s, ratio, seconds


def heading(document: _native.AdviceDocument) -> list[str]:
    """Lines of words: job, traffic, share of the run, and the prediction beside it."""
    job, reproduced = document["job"], document["reproduced"]
    lines = [f"job: {_job(job)}", f"moved: {_moved(job)}"]
    if job["io_share"] is not None:
        lines.append(f"I/O: {_share(job)}")
    if reproduced is not None:
        lines.append(f"predicted: {_predicted(document, reproduced)}")
    elif job["requests"]:
        lines.append("predicted: nothing to hold it against, the log does not time requests")
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
    if not job["requests"]:
        return "nothing: no file was read or written"
    parts = [
        f"{about_bytes(count)} {what}"
        for count, what in ((job["read_bytes"], "read"), (job["written_bytes"], "written"))
        if count
    ]
    text = f"{' and '.join(parts) or '0 B'} in {counted(job['requests'], 'request')}"
    if job["bytes_per_s"] is None or job["slowest_s"] is None:
        return text
    return (
        f"{text}, measured {mib_per_s(job['bytes_per_s'])} MiB/s (its slowest process took {seconds(job['slowest_s'])})"
    )


def _share(job: _native.AdviseJob) -> str:
    share, run_s = job["io_share"] or 0.0, job["run_s"] or 0.0
    text = f"{_percent(share)} of the run time of a process on average"
    parts = [
        f"{what} {seconds(took)}"
        for what, took in (("data", job["data_s"]), ("opens and the like", job["meta_s"]))
        if took
    ]
    text += f" ({', '.join(parts)})" if parts and run_s else ""
    slowest = job["slowest_share"] or 0.0
    return text + (f", {_percent(slowest)} of the slowest" if slowest > 1.2 * share else "")


def _predicted(document: _native.AdviceDocument, reproduced: _native.AdviseReproduced) -> str:
    now = document["total"]["present_bytes_per_s"]
    text = f"{mib_per_s(now)} MiB/s for the same"
    if reproduced["profiles"]:
        text += ", with servers fitted to the log"
    if reproduced["memory_share"] >= 0.01:
        share = _percent(reproduced["memory_share"])
        text += f"; {share} of the bytes moved at the speed of memory (page cache), which no layout changes"
    if reproduced["refused"] is not None:
        text += f". NOT reproduced, so no gain is claimed: {reproduced['refused']}"
    return text


def _percent(share: float) -> str:
    if 0 < share < 0.01:
        return "under 1 %"
    return f"{100 * share:.0f} %"


def _shortened(text: str, most: int = 100) -> str:
    """A command line that fits: its middle is left out, control characters are written out."""
    plain = text if text.isprintable() else text.encode("unicode_escape").decode()
    return plain if len(plain) <= most else f"{plain[: most // 2]}…{plain[-most // 2 + 1 :]}"
