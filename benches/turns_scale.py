"""The simulator with programs that take turns, and the plan of a window, at 1,000 programs and 10,000 servers."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import ROOT, Benchmark, BenchmarkError, Context, Figure, Target, checked

MINUTE = re.compile(r"^(?P<policy>[\w-]+): (?P<seconds>[\d.]+) s for a minute of (?P<what>.*) \((?P<note>.*)\)$")
PLAN = re.compile(r"^test (?P<what>.+) \.\.\. bench:\s+(?P<ns>[\d,]+) ns/iter", re.MULTILINE)
BURST = re.compile(r"^(?P<load>.+), (?P<policy>[\w-]+): (?P<rate>[\d.]+) MiB/s, worst slowdown (?P<worst>[\d.]+)$")
LEAST = re.compile(r"^(?P<load>.+), no schedule has a worst slowdown below (?P<worst>[\d.]+)$")
IORCH = re.compile(r"^(?P<what>fig[278], .+): (?P<words>.+)$")
NUMBER = re.compile(r"(?P<number>[\d.]+) MiB/s")
MOST_S = 60.0
MOST_MS = 50.0


def run(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/simulate/examples/turns_figures.rs` and of `crates/schedule/benches/plan.rs`."""
    context.say("cargo run --release -p stripewise-simulate --example turns_figures")
    found = False
    for line in output_of("stripewise-simulate", "turns_figures", ["--quick"] if context.quick else []):
        if match := MINUTE.match(line):
            found = True
            what = f"a minute of {match['what']}, `{match['policy']}`"
            target = None if context.quick else Target(most=MOST_S)
            yield Figure(what, float(match["seconds"]), "s", target=target, note=match["note"])
    if not found:
        raise BenchmarkError("turns_figures printed no figure")
    context.say("cargo bench -p stripewise-schedule")
    bench = ["cargo", "bench", "--quiet", "--package", "stripewise-schedule", "--bench", "plan", "--"]
    bench += ["--output-format", "bencher"]
    plans = list(PLAN.finditer(checked(bench, cwd=ROOT)))
    if not plans:
        raise BenchmarkError("the bench of stripewise-schedule printed no figure")
    for match in plans:
        took_ms = int(match["ns"].replace(",", "")) / 1e6
        yield Figure(f"plan, {match['what']}", took_ms, "ms", target=Target(most=MOST_MS))


def bursts(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/simulate/examples/bursts_figures.rs`: `opportunity` against the two other policies."""
    context.say("cargo run --release -p stripewise-simulate --example bursts_figures")
    found: dict[str, dict[str, tuple[float, float]]] = {}
    least: dict[str, float] = {}
    for line in output_of("stripewise-simulate", "bursts_figures", ["--quick"] if context.quick else []):
        if match := LEAST.match(line):
            least[match["load"]] = float(match["worst"])
        elif match := BURST.match(line):
            found.setdefault(match["load"], {})[match["policy"]] = (float(match["rate"]), float(match["worst"]))
    if not found:
        raise BenchmarkError("bursts_figures printed no figure")
    for load, rows in found.items():
        for policy, (rate, worst) in rows.items():
            yield Figure(f"{load}: `{policy}`", rate, "MiB/s", note=f"worst slowdown {worst:.2f} x")
        (rate, worst), paper, sets = rows["opportunity"], rows["reuse-distance"], rows["set-10"]
        yield Figure(f"{load}: worst slowdown of any schedule", least[load], note="a bound: no head ever moves")
        what = f"{load}: opportunity /"
        yield Figure(f"{what} reuse-distance", rate / paper[0], target=Target(least=1.0))
        yield Figure(f"{what} reuse-distance, worst slowdown", worst / paper[1], target=Target(most=0.5))
        yield Figure(f"{what} set-10", rate / sets[0], target=Target(least=1.0))
        yield Figure(f"{what} set-10, worst slowdown", worst / sets[1], target=Target(most=1.0))


def iorch(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/simulate/examples/iorch_figures.rs`: those of `iorch-fig2`, `-fig7` and `-fig8`, simulated."""
    context.say("cargo run --release -p stripewise-simulate --example iorch_figures")
    lines = output_of("stripewise-simulate", "iorch_figures", ["--quick"] if context.quick else [])
    found = {match["what"]: match["words"] for line in lines if (match := IORCH.match(line))}
    rates = {what: [float(number) for number in NUMBER.findall(words)] for what, words in found.items()}
    if not found:
        raise BenchmarkError("iorch_figures printed no figure")
    gains = []
    for what, words in found.items():
        if what.startswith("fig8"):
            near, far = rates[what]
            vanilla = rates[f"{what.rpartition(', ')[0]}, none"]
            is_paper = what.endswith("reuse-distance")
            yield Figure(f"{what}: 30 GB apart", far, "MiB/s")
            yield Figure(f"{what}: 30 GB / 0 GB", far / near, target=Target(least=0.95) if is_paper else None)
            target = Target(least=2.5) if is_paper else None
            yield Figure(f"{what}: 30 GB apart, over vanilla", far / vanilla[1], target=target)
        elif what.startswith("fig2"):
            gain, least = (float(word.split()[-1]) for word in words.split(", "))
            gains.append(gain)
            yield Figure(what, gain, low=least, target=Target(least=0.97))
        elif what.endswith("one program after the other"):
            for name, rate in zip(("one program after the other", "no schedule is above"), rates[what], strict=True):
                yield Figure(f"{what.rpartition(', ')[0]}: {name}", rate, "MiB/s")
        else:
            vanilla = rates[f"{what.rpartition(', ')[0]}, none"]
            to_the_end, at_once = (mine / plain for mine, plain in zip(rates[what], vanilla, strict=True))
            yield Figure(f"{what}: to the end, over vanilla", to_the_end)
            yield Figure(f"{what}: while all are there, over vanilla", at_once)
    yield Figure("fig2: mean", sum(gains) / len(gains), target=Target(least=1.43))


IORCH_FIGURES = Benchmark("turns-iorch", "IOrchestrator's figures 2, 7 and 8 in the simulator, and bounds", iorch)
BURSTS = Benchmark("turns-bursts", "programs with pauses between bursts in the simulator, by policy of turns", bursts)
BENCHMARK = Benchmark("turns-scale", "a simulated minute of 1,000 programs in turns on 10,000 servers; its plan", run)
