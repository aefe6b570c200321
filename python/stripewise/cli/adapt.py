"""`stripewise adapt`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stripewise import StripewiseError
from stripewise.api import adapt as adapting
from stripewise.api import adapt_service, asking, ending, promotion, service
from stripewise.api import metrics as serving
from stripewise.api.between import Rounds
from stripewise.api.plan import planners
from stripewise.api.pools import Pool
from stripewise.cli import console, draining, settling
from stripewise.cli import limits as limiting
from stripewise.cli.finite import finite
from stripewise.terminal import name, plain
from stripewise.units import about_bytes, counted, mib_per_s, seconds

if TYPE_CHECKING:
    from stripewise.api.adapt import Decision


def adapt(
    pool_file: Annotated[
        Path, typer.Argument(metavar="POOL", help="Pool file, with a table [heat], or land below [default].")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Decide once and exit; a service of the pool is asked to decide now.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide once, and move nothing.")] = False,
    period_s: Annotated[
        float,
        typer.Option("--period", min=1.0, metavar="SECONDS", callback=finite, help="Time between two decisions."),
    ] = adapt_service.PERIOD_S,
    horizon_h: Annotated[
        float,
        typer.Option("--horizon", min=0.01, metavar="HOURS", callback=finite, help="For how long a move has to pay."),
    ] = 24.0,
    promote_s: Annotated[
        float,
        typer.Option(
            "--promote",
            min=0.0,
            metavar="SECONDS",
            callback=finite,
            help="Time between two looks at what got hot; 0: none.",
        ),
    ] = promotion.LOOK_S,
    limit: limiting.Limit = None,
    hours: limiting.Hours = None,
    rate: draining.Rate = None,
    urgent: draining.Urgent = False,
    planner: Annotated[str, typer.Option(metavar="NAME", help="One of `stripewise planners`.")] = "auto",
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Serve metrics for Prometheus there, on loopback if no HOST."),
    ] = None,
    install_unit: Annotated[
        bool, typer.Option("--install-unit", help="Write a systemd unit that runs this, and exit.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each decision, promotion and relief as a line of JSON.")
    ] = False,
) -> None:
    """Move what is hot to where it is served fast, if that pays, in the foreground.

    Each period it plans from the pool's heat, and compares what the model says of the layouts now and then. Files move
    only if the servers get at least a tenth faster, and gain more time within the horizon than the move takes. Each
    decision is printed with its numbers and kept in the pool. Before that, new files that landed on a fast tier move to
    their place, and a tier near its limit is relieved of what gains least per byte. Files that programs keep in their
    place, or open for writing while they move, stay until later. While the servers are busy for programs, data moves in
    a tenth of the time. Between two decisions, what has become hot comes to a faster tier at once, where it gains what
    moves take within ten seconds. Where reading ahead of programs gains in two decisions, one after the other, it is
    hinted, unless a person has hinted otherwise.

    A service tries again in the next period what has failed. With --once, a service that adapts the pool already is
    asked to decide now, by its own options; while it moves data, that is shown and waited for, and Ctrl-C ends the
    question alone.

    \b
    Examples:
      stripewise adapt p/pool.toml --dry-run
      stripewise adapt p/pool.toml --hours 22-6 --limit 100GB

    \b
    Exit codes: 0 decided, 1 refused or failed.
    """
    pool = Pool.load(pool_file)
    limits = limiting.limits(limit, hours, horizon_h * 3600)
    pace = draining.pace(rate, urgent)
    _require_planner(planner)
    limiting.at_address(metrics)
    if install_unit:
        once_alone = [option for option, given in (("--once", once), ("--dry-run", dry_run)) if given]
        if once_alone:
            raise console.UsageError(
                f"{once_alone[0]} decides once, and the unit of --install-unit runs for good: leave one of them out"
            )
        # A unit could only fail where no decision can be made.
        adapt_service.require(pool)
        options = ["--period", str(period_s), "--horizon", str(horizon_h), "--planner", planner]
        options += ["--promote", str(promote_s)]
        options += ["--limit", limit] if limit is not None else []
        options += ["--hours", hours] if hours is not None else []
        options += ["--rate", rate] if rate is not None else []
        options += ["--urgent"] if urgent else []
        options += ["--metrics", metrics] if metrics is not None else []
        options += ["--json"] if as_json else []
        _install(pool, options)
        return
    wanted = adapt_service.Wanted(limits, planner, pace, promote_s, period_s)
    with ending.tidy_end(), ExitStack() as stack:
        # A dry run changes nothing, so that it may run beside another.
        if not dry_run and not _is_alone(pool, stack, once=once, as_json=as_json):
            return
        if metrics is not None:
            url, _ = serving.serve(pool, metrics)
            console.say(f"metrics for Prometheus at {url}")
        if once or dry_run:
            with console.moving() as progress:
                rounds = Rounds(pool, 0.0, pace)
                decision = rounds.decide(pool, limits, planner=planner, dry_run=dry_run, progress=progress)
            _show(decision, as_json=as_json)
            return
        adapt_service.require(pool)
        # Between two decisions files move, too.
        with console.unpaused():
            for done in adapt_service.run(pool.file, wanted, console.moving):
                _show(done, as_json=as_json)


def _require_planner(planner: str) -> None:
    """Raises `UsageError` for a name that no planner has: a service would fail with each decision."""
    known = [of["name"] for of in planners()]
    if planner not in known:
        raise console.UsageError(f"--planner {planner}: no planner '{planner}'; there is {', '.join(known)}")


def _is_alone(pool: Pool, stack: ExitStack, *, once: bool, as_json: bool) -> bool:
    """Keeps other processes from adapting the pool meanwhile; `False` where another one has decided `once` instead."""
    while True:
        try:
            stack.enter_context(adapting.alone(pool))
            return True
        except adapting.AdaptedError:
            if not once:
                raise
        try:
            _ask(pool, as_json=as_json)
            return False
        except asking.EndedError:
            console.say("it has ended without an answer, so that this command decides")


def _ask(pool: Pool, *, as_json: bool) -> None:
    """Has the service decide now, and shows what it has decided."""
    with console.others_move() as show:
        decision = asking.answer(pool, console.say, show)
    if decision.get("verdict") == "failed":
        raise StripewiseError(plain(str(decision.get("why"))))
    try:
        _show(decision if as_json else _plain(decision), as_json=as_json)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # The owner of the pool may have written the line.
        raise StripewiseError(f"the answer in {adapting.state_file(pool)} is no decision: remove that file") from error


def _plain(of: Any) -> Any:  # noqa: ANN401
    """What another process has decided, without letters that command a terminal."""
    if isinstance(of, dict):
        return {key: _plain(value) for key, value in of.items()}
    if isinstance(of, list):
        return [_plain(one) for one in of]
    return plain(of) if isinstance(of, str) else of


def _show(done: Decision, *, as_json: bool) -> None:
    if as_json:
        console.record(done)
    elif done["verdict"] == "promoted":
        _print_promoted(done)
    elif done["verdict"] == "relieved":
        for step in done["relief"]:
            settling.report(step)
    else:
        _print(done)
    console.out.file.flush()


def _print_promoted(done: Decision) -> None:
    console.result(
        f"promoted parts of {counted(done['files'], 'file')}: {about_bytes(done['came_bytes'])} in, "
        f"{about_bytes(done['left_bytes'])} out, copied {about_bytes(done['copied_bytes'])} in "
        f"{seconds(done['took_s'])}; heat {seconds(done['moved_heat_s'])}, "
        f"{seconds(done['gain_s'])} gained in {seconds(promotion.PAYS_WITHIN_S)}, {seconds(done['move_s'])} for moving"
    )
    for file in done["skipped"]:
        console.result(f"{name(file['path'])}: left for later: {name(file['why'])}")


def _install(pool: Pool, options: list[str]) -> None:
    file, text = adapting.unit(pool, ["adapt", str(pool.file), *options])
    start = service.install(file, text)
    console.result(f"wrote {file}")
    console.hint(f"`{start}` starts it")


def _print_small_files(done: Decision) -> None:
    asked = f"small files: {done['leaving']:,} above the threshold, {done['returning']:,} cut to less than it"
    if "moved_files" in done:
        asked += f"; moved {counted(done['moved_files'], 'file')}, copied {about_bytes(done['copied_bytes'])}"
    console.result(f"{asked}: {done['why']}" if "why" in done else asked)
    for file in done.get("staying", []):
        console.result(f"{name(file['path'])}: left for later: {name(file['why'])}")


def _print_hint(hint: Decision) -> None:
    if hint["verdict"] == "failed":
        console.result(f"no hints: {hint['why']}")
        return
    of = name(hint["directory"] or ".") + ("" if hint["pattern"] is None else f", {hint['pattern']}")
    told = f"{hint['optimisation']} for {of}: requests like the last ones take {seconds(hint['then_s'])} in place of "
    told += f"{seconds(hint['now_s'])} by the model"
    if hint["verdict"] == "hinted":
        console.result(f"{told}; hinted, {counted(hint['files_hinted'], 'file')} read so from the next open on")
    else:
        console.result(f"{told}; not hinted: {hint['why']}")
    for file in hint["skipped"]:
        console.result(f"{name(file['path'])}: left for later: {name(file['why'])}")


def _print(decision: Decision) -> None:
    if "away" in decision:
        console.warn(f"not there: {', '.join(decision['away'])}; what is on it stays where it is")
    for step in decision.get("relief", []):
        settling.report(step)
    if "small_files" in decision:
        _print_small_files(decision["small_files"])
    for hint in decision.get("hints", []):
        _print_hint(hint)
    if "ratio" in decision:
        before, after = (mib_per_s(decision[f"{when}_bytes_per_s"]) for when in ("before", "after"))
        console.result(
            f"planner {decision['planner']}: {before} MiB/s now, {after} MiB/s then by the model "
            f"({decision['ratio']:.2f}x); {seconds(decision['gain_s'])} gained in {seconds(decision['horizon_s'])}, "
            f"{about_bytes(decision['moved_bytes'])} to move in {seconds(decision['move_s'])}"
        )
    if "measured" in decision:
        gain = decision["measured"]
        before, after = (mib_per_s(gain[f"{when}_bytes_per_s"]) for when in ("before", "after"))
        console.result(
            f"measured since the last move: the servers serve {after} MiB/s, before it {before} MiB/s "
            f"({gain['ratio']:.2f}x; the model said {gain['predicted_ratio']:.2f}x)"
        )
    for file in decision.get("skipped", []):
        console.result(f"{name(file['path'])}: left for later: {name(file['why'])}")
    if decision["verdict"] == "failed":
        console.result(f"no decision: {decision['why']}")
    elif decision["verdict"] == "moved":
        part = f" of {about_bytes(decision['planned_bytes'])} to copy in all" if decision["is_part"] else ""
        stay = len(decision["skipped"])
        without = f", without {counted(stay, 'file')} that cannot move now" if stay else ""
        console.result(f"moved, copied {about_bytes(decision['copied_bytes'])}{part}{without}")
        if "unpriced" in decision:
            console.result(f"what has moved cannot be priced, so that its gain is not measured: {decision['unpriced']}")
        if "stopped" in decision:
            console.result(f"stopped: {decision['stopped']}")
    else:
        console.result(f"nothing moved: {decision['why']}")
    if decision.get("skipped") and decision["verdict"] != "moved":
        console.say(f"{counted(len(decision['skipped']), 'file')} could not move now")
