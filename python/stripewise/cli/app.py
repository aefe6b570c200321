"""The command tree and what happens to errors."""

from typing import Annotated, NoReturn

import typer

from stripewise import StripewiseError, __version__
from stripewise.cli import (
    advise,
    apply,
    bench,
    console,
    export,
    import_,
    mount,
    optimize,
    plan,
    planners,
    pool_calibrate,
    pool_init,
    pool_show,
    report,
    reproduce,
    run,
    show,
    signature,
    simulate,
    stat,
    top,
    trace,
    umount,
)
from stripewise.launch import NotExecutableError, ProgramNotFoundError

CONTEXT = {"help_option_names": ["-h", "--help"]}
# Options end at the program's name, so the program's own options need no `--` in front.
PROGRAM_CONTEXT = {**CONTEXT, "allow_interspersed_args": False}

app = typer.Typer(
    name="stripewise",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
pool = typer.Typer(
    name="pool", rich_markup_mode=None, no_args_is_help=True, context_settings=CONTEXT, help="Make and inspect pools."
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stripewise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Put each part of each file where it is served fastest.

    A pool is a set of directories on fast and slow disks, seen as one tree. Stripewise records how a program uses its
    files, plans which part of which file goes to which disks, moves it there, and measures whether it helped.

    \b
    Examples:
      stripewise pool init ./p --hdd 6 --ssd 2 --emulate    a pool to try things on, on this machine
      stripewise pool init /disk1 /disk2 --ssd /nvme        a pool on real disks
      stripewise optimize --pool p/pool.toml -- ./simulate  trace, plan, place, verify: all of it
      stripewise run --pool p/pool.toml -- ./simulate       just run a program on the pool

    \b
    Exit codes:
      0    done; for `optimize`: the new layout is faster and was kept
      1    failed, the message says why
      2    the command line is wrong
      3    `optimize`: not faster beyond noise, the previous layout is back
      4    `optimize`: the emulated devices could not keep their times, no figure
      126  the program cannot be executed; 127: it does not exist; else the program's own exit code
      130  interrupted
    """


pool.command("init", context_settings=CONTEXT)(pool_init.pool_init)
pool.command("show", context_settings=CONTEXT)(pool_show.pool_show)
pool.command("calibrate", context_settings=CONTEXT)(pool_calibrate.pool_calibrate)
app.add_typer(pool)
app.command("trace", context_settings=PROGRAM_CONTEXT)(trace.trace)
app.command("import", context_settings=CONTEXT)(import_.import_)
app.command("show", context_settings=CONTEXT)(show.show)
app.command("signature", context_settings=CONTEXT)(signature.signature)
app.command("plan", context_settings=CONTEXT)(plan.plan)
app.command("report", context_settings=CONTEXT)(report.report)
app.command("simulate", context_settings=CONTEXT)(simulate.simulate)
app.command("planners", context_settings=CONTEXT)(planners.planners)
app.command("advise", context_settings=CONTEXT)(advise.advise)
app.command("export", context_settings=CONTEXT)(export.export)
app.command("apply", context_settings=CONTEXT)(apply.apply)
app.command("mount", context_settings=CONTEXT)(mount.mount)
app.command("umount", context_settings=CONTEXT)(umount.umount)
app.command("run", context_settings=PROGRAM_CONTEXT)(run.run)
app.command("stat", context_settings=CONTEXT)(stat.stat)
app.command("optimize", context_settings=PROGRAM_CONTEXT)(optimize.optimize)
app.command("bench", context_settings={"ignore_unknown_options": True, "help_option_names": []})(bench.bench)
app.command("top", context_settings=CONTEXT)(top.top)
app.command("reproduce", context_settings=CONTEXT)(reproduce.reproduce)


def main() -> NoReturn:
    """Runs the command line and exits; every error is one message that names the thing, the value and the remedy."""
    try:
        app()
    except ProgramNotFoundError as error:
        console.fail(str(error), console.EXIT_NOT_FOUND)
    except NotExecutableError as error:
        console.fail(str(error), console.EXIT_NOT_EXECUTABLE)
    except StripewiseError as error:
        console.fail(str(error))
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; it is not our failure.
        raise SystemExit(0) from None
    except OSError as error:
        console.fail(str(error))
    except KeyboardInterrupt:
        console.fail("interrupted", console.EXIT_INTERRUPTED)
    raise SystemExit(0)
