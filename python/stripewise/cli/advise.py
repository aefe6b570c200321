"""`stripewise advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import advice as api
from stripewise.api import together
from stripewise.cli import advice, concurrent, console
from stripewise.cli.advised import PRESET, PlannerOption, PresetOption, RootOption, ServersOption
from stripewise.cli.excerpt import AppOption, FileOption, RankOption, options
from stripewise.cli.opened import opened


def advise(
    logs: Annotated[
        list[Path],
        typer.Argument(metavar="LOG...", help="A trace, or any log that Stripewise reads; several of one time."),
    ],
    cluster: ServersOption = None,
    preset: PresetOption = PRESET,
    osts: Annotated[
        int | None,
        typer.Option(
            "--osts", metavar="N", min=1, max=4096, help="Lustre's targets, where the log shows none or not all."
        ),
    ] = None,
    root: RootOption = None,
    planner: PlannerOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="LAYOUT", help="Layout file to write, of what should change."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the advice as JSON.")] = False,
    file: FileOption = None,
    rank: RankOption = None,
    app: AppOption = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Read an imported log on the workers of this Dask scheduler."),
    ] = None,
) -> None:
    """Say of any log where its files should be, what that gains, and what matters more.

    First comes the job, what it moved, the measured rate and its share of the run; beside them what the model makes of
    the same run, its servers fitted to how long the log's requests took. Where the two differ by more than a factor of
    2 no gain is claimed, and the reason is said. Without servers all but the layouts is said.

    Files that are named alike but for numbers, laid out alike and used alike are one row. Each row has its present
    layout and what it waits for, and a better layout where the predicted gain is beyond doubt: no change is advised
    where the low end of its interval is below 1.03. The interval comes from simulations with several seeds, the model's
    own error, and what the log lacks; the reasons are printed. Findings beside the layouts come with their figures and
    their remedies. Where the servers are of a known file system its commands come last, with what they lose of the
    layouts, what that costs, and what they assume.

    Several logs are programs of one time, by the logs' own clocks. They are simulated on the servers of --cluster,
    alone and together: which of them hurt each other, on which servers, and which policy of `stripewise orchestrate`
    helps.

    \b
    Examples:
      stripewise advise job.darshan
      stripewise advise job.darshan --file '*.h5' --app lammps
      stripewise advise job.darshan --cluster orion.toml -o new.layout
      stripewise advise job.darshan --osts 16 --preset ssd-sata
      stripewise advise run.trace --cluster p/pool.toml -o new.layout
      stripewise advise strace.log --cluster orion.toml --root /scratch/me --json
      stripewise advise one.darshan two.darshan --cluster orion.toml
      stripewise advise run.imported --cluster orion.toml --dask tcp://node1:8786
    """
    if len(logs) > 1:
        one_log = {"--output": output, "--planner": planner, "--osts": osts, "--dask": dask}
        if given := [option for option, value in one_log.items() if value is not None]:
            console.fail(f"{given[0]} is for one log: omit it, or name one log", console.EXIT_USAGE)
        if cluster is None:
            console.fail("several logs are simulated together: name their servers with --cluster", console.EXIT_USAGE)
        found = together.advised(
            [opened(log, files=file, ranks=rank, apps=app) for log in logs], cluster=cluster, root=root
        )
        if as_json:
            console.document(found)
        else:
            concurrent.show_pairs(found)
            console.out.print()
            concurrent.show_policies(found)
        return
    log = logs[0]
    workers = None if dask is None else api.Workers(log, dask, console.working)
    trace = opened(log, index=workers is not None, files=file, ranks=rank, apps=app)
    made = api.advise(trace, cluster=cluster, root=root, planner=planner, preset=preset, osts=osts, workers=workers)
    document, native = made.document, made.native
    if output is not None:
        made.save(output)
    if as_json:
        console.document(
            {
                **document,
                "hints": made.hints,
                "now_then": made.now_then,
                "native": None if native is None else native.as_dict(),
            }
        )
    else:
        advice.show(made, [str(log), *options(file, rank, app)], cluster)
    if output is None:
        return
    if document["total"]["change"]:
        is_pool = document["cluster"]["file_system"] is None
        console.say(f"wrote {output}" + (f"; `stripewise apply {output} --pool POOL` sets it" if is_pool else ""))
    else:
        console.say(f"wrote {output}: it names no file, since none should change")
