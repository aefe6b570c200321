"""The command tree and what happens to errors."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, NoReturn

import typer

from stripewise import StripewiseError, __version__, terminal
from stripewise.cli import console

WORD_COLUMNS = 60
"""Of a wrong word of the command line, in a message."""
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
    name="pool",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=CONTEXT,
    help="Make, inspect and change pools.",
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
      stripewise pool init ./p --hdd 6 --ssd 2 --emulate    a pool to try on
      stripewise pool init /disk1 /disk2 --ssd /nvme        a pool on real disks
      stripewise optimize --pool p/pool.toml -- ./simulate  all of it
      stripewise run --pool p/pool.toml -- ./simulate       run a program on it

    \b
    Exit codes:
      0    done; for `optimize`: the new layout is faster and was kept
      1    failed, the message says why
      2    the command line is wrong
      3    `optimize`: not faster beyond noise, the previous layout is back
      4    `optimize`: the emulated devices could not keep their times, no figure
      126  the program cannot be executed
      127  the program does not exist
      130  interrupted
    Else the program's own.
    """


_POOL = {
    name: f"pool_{name}"
    for name in ("init", "show", "calibrate", "add", "drain", "remove", "replace", "rebalance", "settle")
}
_COMMANDS: dict[str, dict[str, Any]] = {
    "trace": PROGRAM_CONTEXT,
    "import": CONTEXT,
    "show": CONTEXT,
    "signature": CONTEXT,
    "plan": CONTEXT,
    "report": CONTEXT,
    "compare": CONTEXT,
    "simulate": CONTEXT,
    "planners": CONTEXT,
    "advise": CONTEXT,
    "survey": CONTEXT,
    "export": CONTEXT,
    "apply": CONTEXT,
    "hint": CONTEXT,
    "mount": CONTEXT,
    "umount": CONTEXT,
    "run": PROGRAM_CONTEXT,
    "stat": CONTEXT,
    "heat": CONTEXT,
    "fsck": CONTEXT,
    "export-tree": CONTEXT,
    "optimize": PROGRAM_CONTEXT,
    "adapt": CONTEXT,
    "bench": {"ignore_unknown_options": True, "help_option_names": []},
    "top": CONTEXT,
    "orchestrate": CONTEXT,
    "agent": {"ignore_unknown_options": True, "help_option_names": []},
    "reproduce": CONTEXT,
    "help": CONTEXT,
}
"""In the order of the help; each is the function of its name in the module of its name, or with `_` where Python has
that word for itself, or no such names."""


_IN_SHORT = {
    "pool init": "Make a pool of directories on some disks.",
    "pool show": "Show a pool: tiers, servers, costs, room.",
    "pool calibrate": "Measure what reads and writes cost on each server.",
    "pool add": "Add servers: a directory on each new disk.",
    "pool drain": "Move all files from a server.",
    "pool remove": "Take out a server that has no bytes, or has died.",
    "pool replace": "Put a new disk in the place of a server.",
    "pool rebalance": "Fill the servers of each tier alike.",
    "pool settle": "Move new files from where they landed to their place.",
    "trace": "Record every request that a program makes.",
    "import": "Import a log of another tool as a table on disk.",
    "show": "Show what is in a trace, a log, a layout or a pool.",
    "signature": "Tell how each file is used.",
    "plan": "Plan which part of which file goes where.",
    "report": "Draw how a program used its files, as a page.",
    "compare": "Compare two runs, or two layouts.",
    "simulate": "Simulate a trace on a pool or a cluster.",
    "planners": "List the planners.",
    "advise": "Say of any log where its files should be, and why.",
    "survey": "Sum up many logs, and what layouts would gain.",
    "export": "Translate layouts for a parallel file system.",
    "apply": "Set layouts: move files, and rules for new ones.",
    "hint": "Say what files get that are made in a directory.",
    "heat": "Show what accesses to parts of files cost.",
    "fsck": "Check a pool and mend it.",
    "optimize": "Trace, plan, place and verify a better layout.",
    "adapt": "Move what is hot to faster servers, if that pays.",
    "bench": "Generate I/O: the workloads of the literature.",
    "top": "Watch what each server of a pool does.",
    "orchestrate": "Let programs take turns on the servers.",
    "agent": "Let programs of this node take turns with others.",
    "reproduce": "Do the papers' experiments again.",
}
"""In the list of commands; else the first sentence of the command's help, which has to fit there."""


def _add_commands(words: list[str]) -> None:
    """Adds the command that the command line begins with; all, or all of its group, where that is none of them.

    To load them all takes longer than many a command.
    """
    first, second = [*words, "", ""][:2]
    everything = first != "pool" and first not in _COMMANDS
    if first == "pool" or everything:
        for name, module in _POOL.items():
            if second == name or second not in _POOL or everything:
                short = _IN_SHORT.get(f"pool {name}")
                pool.command(name, context_settings=CONTEXT, short_help=short)(_function(module))
        app.add_typer(pool)
    for name, context in _COMMANDS.items():
        if first == name or everything:
            app.command(name, context_settings=context, short_help=_IN_SHORT.get(name))(_function(_module(name)))


def _module(command: str) -> str:
    return f"{command}_" if iskeyword(command) else command.replace("-", "_")


def _function(module: str) -> Callable[..., None]:
    function: Callable[..., None] = getattr(import_module(f"stripewise.cli.{module}"), module)
    return function


def _in_words(error: OSError) -> str:
    if not isinstance(error.filename, str | bytes) or not error.strerror:
        return str(error)
    names = " or ".join(
        os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)
    )
    remedy = "; check the path" if isinstance(error, FileNotFoundError) else ""
    return f"cannot use {names}: {error.strerror}{remedy}"


def main() -> NoReturn:
    """Runs the command line and exits; every error is one message that names the thing, the value and the remedy."""
    try:
        _add_commands(sys.argv[1:])
        try:
            app()
        finally:
            console.say_now()
    except console.UsageError as error:
        console.fail(str(error), console.EXIT_USAGE)
    except StripewiseError as error:
        # That of a program which cannot be started is a shell's.
        console.fail(str(error), getattr(error, "exit_code", console.EXIT_FAILED))
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":
            raise
        # Only paths are taken as any bytes.
        console.fail(f"'{terminal.middle(terminal.name(error.object), WORD_COLUMNS)}' is not UTF-8; write it in UTF-8")
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; it is not our failure.
        raise SystemExit(0) from None
    except OSError as error:
        console.fail(_in_words(error))
    except KeyboardInterrupt:
        console.fail("interrupted", console.EXIT_INTERRUPTED)
    raise SystemExit(0)
