"""The compiled part of the package (crates/python). Paths are text; sizes are bytes, times seconds."""

import builtins
from collections.abc import Callable, Iterable
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

__version__: str

class StripewiseError(Exception): ...

def parse_bytes(text: str) -> int: ...

# Pools

class OpProfile(TypedDict):
    startup_min_s: float
    startup_max_s: float
    sequential_startup_s: float | None
    ahead_bytes: int
    bandwidth_bytes_per_s: float

class ServerInfo(TypedDict):
    id: int
    name: str
    path: str
    state: Literal["used", "draining"]
    seeks: list[list[float]]

class TierInfo(TypedDict):
    name: str
    servers: list[ServerInfo]
    capacity_bytes: int | None
    emulated: bool
    dilation: float
    read: OpProfile | None
    write: OpProfile | None
    network_s_per_byte: float
    profile_source: Literal["pool file", "emulation", "ssd-sata", "none"]

class PoolInfo(TypedDict):
    file: str
    name: str
    mount: str
    namespace: str
    default_width_bytes: int
    land: str | None
    land_mark: float | None
    keeps_heat: bool
    tiers: list[TierInfo]
    meta_at_once: int
    meta_names: NameCosts | None
    meta: TierInfo

class NewTier(TypedDict):
    name: str
    servers: list[str]
    capacity_bytes: int | None
    emulate: str | None
    dilation: float | None

def pool_load(path: str) -> PoolInfo: ...
def pool_usage(path: str) -> list[tuple[str, tuple[int, int, str | None]]]: ...
def pool_init(path: str, name: str, mount: str, namespace: str, tiers: list[NewTier], shared: bool = False) -> None: ...
def pool_write_profile(
    path: str, tier: str, read: list[float], write: list[float], heads: list[list[float] | None] = ...
) -> None: ...
def pool_write_at_once(path: str, at_once: int) -> None: ...
def pool_write_names(path: str, look_s: list[float], change_s: list[float]) -> None: ...
def pool_write_seeks(path: str, seeks: list[tuple[str, list[tuple[int, float]] | None]]) -> None: ...

class FileHeat(TypedDict):
    id: NotRequired[int]
    """Its handle; none of heat that is not a pool's."""
    path: str
    size_bytes: int
    cost_us: int
    blocks: list[tuple[int, int]]

class PoolHeat(TypedDict):
    block_bytes: int
    period_s: int
    missed: int
    files: list[FileHeat]
    unreadable: NotRequired[list[dict[str, str]]]
    """`path` of files that may have heat and cannot be read, and `why`."""

class BlockHeat(TypedDict):
    block_bytes: int
    period_s: int
    next_halving_s: int
    blocks: list[tuple[int, int, int]] | None
    """`id` of the file, number of the block, and microseconds; `None` of more blocks than were asked for."""

def pool_heat(pool_file: str, path: str) -> PoolHeat: ...
def pool_block_heat(pool_file: str, most: int) -> BlockHeat: ...
def pool_recent(pool_file: str) -> list[tuple[int, int, int, bool, int, int]]:
    """File, offset, length, whether it is a write, thread and milliseconds of the last requests, the oldest first."""

class LatencyHistogram(TypedDict):
    server: str
    op: Literal["read", "write"]
    counts: list[int]
    """Of each bucket by itself; the last one has no bound."""
    sum_s: float

class PoolLatencies(TypedDict):
    bounds_s: list[float]
    servers: list[LatencyHistogram]

def pool_latencies(pool_file: str) -> PoolLatencies: ...

class MetaPeriod(TypedDict):
    time_s: float
    """When it ended, since the epoch."""
    served: int
    names: int
    """Of the served ones, operations on names."""
    waiting: int
    """At its end."""
    bytes: int
    latency_s: float
    load: float
    """Share of the tier's time."""
    esm: float
    """The next period's, as smoothing predicts it."""
    bls_esm: float
    """The same with what waits."""
    share: float
    """The threshold after it, of what directories hint."""

class MetaLoad(TypedDict):
    is_known: bool
    """Whether the bandwidth of the tier is."""
    periods: list[MetaPeriod]

def pool_meta_load(pool_file: str) -> MetaLoad: ...

class StayingFile(TypedDict):
    path: str
    why: str
    is_busy: bool
    stretches: list[tuple[int, int]]
    """The first 4096."""
    left_out: int
    """How many stretches there are behind these."""
    bytes: int

class Drained(TypedDict):
    moved_files: int
    copied_bytes: int
    rules: int
    staying: list[StayingFile]

class DrainedByFile(Drained):
    passed_over: list[str]
    """Files that had nothing to move: they are gone, others, or were changed since that was decided."""

def pool_add(pool_file: str, asked: list[tuple[str, str]]) -> list[str]: ...
def pool_replace(
    pool_file: str,
    server: str,
    root: str,
    *,
    wait: bool,
    progress: Callable[[str, int, int], bool | Literal["rest"]],
) -> tuple[str, Drained]: ...
def pool_take_back(pool_file: str, server: str) -> None: ...
def pool_drain(
    pool_file: str,
    server: str,
    *,
    to: str | None,
    wait: bool,
    dry_run: bool,
    progress: Callable[[str, int, int], bool | Literal["rest"]],
) -> Drained: ...
def pool_remove(
    pool_file: str, server: str, lost: bool, progress: Callable[[str, int, int], bool | Literal["rest"]]
) -> Drained: ...

class TierRoom(TypedDict):
    server: str
    used_bytes: int
    free_bytes: int
    on_disk_bytes: int
    reserve_bytes: int

class TierPart(TypedDict):
    path: str
    handle: int
    """Tells the file from all others."""
    version: int
    """Of the handle: each change of the layout counts it up."""
    stretch: tuple[int, int]
    tier_bytes: int
    by_server: dict[str, int]
    has_landed: bool

class TierParts(TypedDict):
    rooms: list[TierRoom]
    parts: list[TierPart]
    begun: list[int]
    """Handles of files that have begun to leave, and may have more there."""
    unread: list[StayingFile]
    """Files that could not be read, whatever they have there."""

def pool_tier_rooms(pool_file: str, tier: str) -> list[TierRoom]: ...
def pool_tier_parts(pool_file: str, tier: str, begun: dict[int, tuple[int, int]] = ...) -> TierParts: ...
def pool_relieve(
    pool_file: str,
    tier: str,
    leaving: list[tuple[str, int, int, list[tuple[int, int]], bool]],
    progress: Callable[[str, int, int], bool | Literal["rest"]],
) -> DrainedByFile: ...

class DueSmallFile(TypedDict):
    path: str
    handle: int
    size_bytes: int
    head_bytes: int
    """To be in the inode; 0: it goes to the servers."""
    moved_bytes: int

def pool_due_small_files(pool_file: str, before: dict[int, tuple[float, int | None]]) -> list[DueSmallFile]: ...
def pool_move_small_files(
    pool_file: str,
    heads: list[tuple[str, int, int]],
    progress: Callable[[str, int, int], bool | Literal["rest"]],
) -> DrainedByFile: ...

class ServerFill(TypedDict):
    server: str
    before_bytes: int
    after_bytes: int
    size_bytes: int

class Rebalanced(TypedDict):
    moved_files: int
    copied_bytes: int
    staying: list[StayingFile]
    servers: list[ServerFill]

def pool_rebalance(
    pool_file: str,
    *,
    takers: list[str],
    keep: set[str],
    dry_run: bool,
    progress: Callable[[str, int, int], bool | Literal["rest"]],
) -> Rebalanced: ...

class FittedOp(TypedDict):
    startup_min_s: float
    startup_max_s: float
    sequential_startup_s: float | None
    ahead_bytes: int
    transfer_s_per_byte: float
    residual: float
    requests: int

class CalibratedServer(TypedDict):
    name: str
    method: str
    read: FittedOp
    write: FittedOp
    seeks: list[list[float]] | None

class NameCosts(TypedDict):
    """What operations on names cost: least and greatest time of those that look and of those that change something."""

    look_s: list[float]
    change_s: list[float]

class CalibratedTier(TypedDict):
    name: str
    read: list[float]
    write: list[float]
    heads: list[list[float] | None]
    at_once: int
    names: NameCosts | None
    """Of the metadata tier."""
    warnings: list[str]
    servers: list[CalibratedServer]

def calibrate(
    pool_file: str, tiers: list[str], budget_s: float, progress: Callable[[list[float]], None]
) -> list[CalibratedTier]: ...

# Checking a pool, and getting its files out

class FsckFinding(TypedDict):
    kind: str
    outcome: Literal["mended", "would-mend", "left", "in-use", "note"]
    path: str | None
    server: str | None
    object: str | None
    lost: list[list[int]]
    """The first 4096 stretches."""
    lost_left_out: int
    """How many stretches there are behind these."""
    what: str
    action: str

class FsckOutcomes(TypedDict):
    mended: int
    would_mend: int
    left: int
    in_use: int
    notes: int

class FsckReport(TypedDict):
    exit_code: int
    files: int
    placed_files: int
    files_in_use: int
    datafiles: int
    read_bytes: int
    total: FsckOutcomes
    kinds: dict[str, FsckOutcomes]

def pool_fsck(
    pool_file: str,
    *,
    dry_run: bool,
    rebind: bool,
    forget_missing: bool,
    remove_orphans: bool,
    scrub: bool,
    layouts_from: list[str],
    found: Callable[[FsckFinding], None],
    progress: Callable[[str, int, int | None], None],
) -> FsckReport: ...

class ExportFailure(TypedDict):
    path: str
    reason: str

class ExportReport(TypedDict):
    files: int
    resumed_files: int
    bytes: int
    hard_links: int
    directories: int
    symlinks: int
    special_files: int
    owners_not_kept: int
    failed: int

def pool_export_tree(
    pool_file: str,
    to: str,
    verify_only: bool,
    failed: Callable[[ExportFailure], None],
    progress: Callable[[str, int, int], None],
) -> ExportReport: ...

# Clusters

class ClusterDefault(TypedDict):
    tier: str | None
    count: int
    width_bytes: int

class ClusterTier(TypedDict):
    name: str
    servers: int
    preset: str | None
    capacity_bytes: int | None
    pool: str | None
    read: OpProfile
    write: OpProfile
    network_s_per_byte: float

class ClusterInfo(TypedDict):
    name: str
    kind: Literal["cluster", "pool"]
    file_system: Literal["lustre", "beegfs", "cephfs", "orangefs"] | None
    default: ClusterDefault
    tiers: list[ClusterTier]

def cluster_load(path: str) -> ClusterInfo: ...

# Emulated servers

class ServerOpStatistics(TypedDict):
    requests: int
    bytes: int
    busy_s: float
    waiting_s: float

class ServerStatistics(TypedDict):
    name: str
    read: ServerOpStatistics
    write: ServerOpStatistics
    median_error: float | None

class EmulationVerdict(TypedDict):
    valid: bool
    text: str
    median: float | None
    p99: float | None
    median_overshoot_s: float | None
    requests: int

class EmulationDifference(TypedDict):
    servers: list[ServerStatistics]
    verdict: EmulationVerdict

class EmulationSnapshot:
    def since(self, earlier: EmulationSnapshot) -> EmulationDifference: ...
    def total(self) -> list[ServerStatistics]: ...

def emulation_snapshot(pool_file: str) -> EmulationSnapshot: ...

# Turns of programs

class OrchestrationDecision(TypedDict):
    program: str
    is_change: bool
    text: str

class OrchestrationSlice(TypedDict):
    program: str
    slice_s: float

class OrchestratedProgram(TypedDict):
    name: str
    user: int
    is_busy: bool
    standing: str | None
    processes: int
    files: int
    requests: int
    bytes: int
    held: int
    waited_s: float
    in_turn: int
    unanswered: int
    overdue: int
    weight: float
    limit_bytes_per_s: int | None
    slice_s: float
    gap_bytes: float | None
    reuse_s: float | None
    period_s: float | None

class OrchestratedServer(TypedDict):
    server: str
    requests: int
    bytes: int

class OrchestratedNode(TypedDict):
    name: str
    address: str | None
    is_here: bool
    is_joined: bool
    clock_offset_s: float | None
    clock_error_s: float
    heard_s: float
    is_in_turns: bool | None
    programs: list[OrchestratedProgram]
    servers: list[OrchestratedServer]

class Orchestration(TypedDict):
    process: int | None
    policy: str | None
    window_s: float
    age_s: float
    plans: int
    served: str | None
    slices: list[OrchestrationSlice]
    programs: list[OrchestratedProgram]
    unplaced: int
    nodes: list[OrchestratedNode]
    nodes_told_s: float | None

class Orchestrator:
    def work(self, time_s: float) -> list[OrchestrationDecision]: ...
    def take_remarks(self) -> list[str]: ...
    def end(self) -> None: ...

def schedule_policies() -> list[tuple[str, str]]: ...
def orchestrate(
    pool_file: str, policy: str, window_s: float, weights: dict[str, float], limits: dict[str, int]
) -> Orchestrator: ...
def orchestration(pool_file: str) -> Orchestration: ...

# Traces

class Names(TypedDict):
    api: dict[int, str]
    op: dict[int, str]

class Lack(TypedDict):
    name: str
    words: str

class TraceJob(TypedDict):
    command: str | None
    user: str | None
    id: str | None
    nodes: int | None

class TraceAbout(TypedDict):
    format: str
    job: TraceJob
    lacks: list[Lack]
    notes: list[str]
    processes: int | None
    run_s: float | None
    start_unix_s: float | None

class TraceProcess(TypedDict):
    program: int
    rank: int
    pid: int
    host: str
    records: int

class FileCounters(TypedDict):
    file: int
    api: str
    rank: int | None
    counters: dict[str, float | None]

class LustreComponent(TypedDict):
    start: int
    end: int | None
    stripe_bytes: int
    stripe_count: int
    pool: str
    osts: list[int]

class LustreLayout(TypedDict):
    file: int
    components: list[LustreComponent]

class Trace:
    def __init__(
        self, path: str, progress: Callable[[int, int], object] | None = None, *, files: list[int] | None = None
    ) -> None: ...
    def record_count(self) -> int: ...
    def excerpt(
        self,
        log: str,
        note: str,
        *,
        files: set[int] | None,
        ranks: set[int] | None,
        programs: set[int] | None,
    ) -> Trace: ...
    def save(self, path: str, progress: Callable[[int, int], object] | None = None) -> None: ...
    def write_parquet(self, path: str) -> None: ...
    def write_csv(self, descriptor: int) -> None: ...
    def about(self) -> TraceAbout: ...
    def counters(self) -> list[FileCounters]: ...
    def lustre_layouts(self) -> list[LustreLayout]: ...
    def summary(self) -> dict[str, Any]: ...
    def summaries(self, groups: list[list[int]]) -> list[dict[str, Any]]: ...
    def files(self) -> list[str]: ...
    def processes(self) -> list[TraceProcess]: ...
    def programs(self) -> list[str]: ...
    @staticmethod
    def names() -> Names: ...
    def sample(self, file: int, most: int) -> dict[str, npt.NDArray[np.unsignedinteger[Any]]]: ...
    def in_flight(self, files: list[int]) -> float: ...
    def busy_s(self, files: list[int]) -> float | None: ...
    def columns(self, *, requests_only: bool = False) -> dict[str, npt.NDArray[np.unsignedinteger[Any]]]: ...

# Signatures

class SignaturePhase(TypedDict):
    start_s: float
    end_s: float
    requests: int
    read_bytes: int
    written_bytes: int

class SignatureFactors(TypedDict):
    """The five factors of Chen et al.; `ratio` is numbers of the requests per number of the signatures."""

    pattern: str
    operation: Literal["READ", "WRITE", "RW"]
    spatial: str
    dimension: int
    repetition: Literal["single", "repeating"]
    size: Literal["fixed", "variable"]
    size_class: Literal["small", "medium", "large"]
    temporal: Literal["fixed", "random", "unknown"]
    requests: int
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    offset: int
    end: int
    min_bytes: int
    max_bytes: int
    parts: int
    ratio: float

class FileSignature(SignatureFactors):
    file: int
    path: str
    words: str
    programs: list[str]
    processes: int
    made_up: bool
    unknown_offsets: int
    phases: list[SignaturePhase]

class ProcessSignature(SignatureFactors):
    """`process` counts the processes of its file from 0."""

    file: int
    path: str
    process: int
    program: str
    rank: int
    pid: int
    words: str
    phases: list[SignaturePhase]

class ProgramSignature(SignatureFactors):
    program: str
    files: int
    processes: int

class Accesses(TypedDict):
    write: npt.NDArray[np.uint8]
    offset: npt.NDArray[np.uint64]
    size: npt.NDArray[np.uint64]

class TraceSignature:
    def __init__(self, trace: Trace, progress: Callable[[int, int], object] | None = None) -> None: ...
    def files(self) -> list[FileSignature]: ...
    def processes(self, file: int | None = None) -> list[ProcessSignature]: ...
    def programs(self) -> list[ProgramSignature]: ...
    def file_programs(self) -> list[str]: ...
    def text(self, file: int, process: int, parts: int | None = None) -> str: ...
    def expand(self, file: int, process: int) -> Accesses: ...
    def check(self, progress: Callable[[int, int], object] | None = None) -> int: ...

def signature_expand(text: str, most: int) -> Accesses: ...
def signature_programs(files: list[str], names: list[str]) -> list[ProgramSignature]: ...
def trace_merge(directory: str, out: str) -> None: ...
def path_pattern(path: str) -> str: ...
def log_format(path: str) -> str | None: ...

# Layouts

class StripeInfo(TypedDict):
    server: str
    width_bytes: int

class RegionInfo(TypedDict):
    offset: int
    round: list[str]
    stripes: list[StripeInfo]

class FileLayout(TypedDict):
    path: str
    regions: list[RegionInfo]

class LayoutDocument(TypedDict):
    pool: str
    files: list[FileLayout]

class Applied(TypedDict):
    path: str
    kind: Literal["moved", "rule"]
    copied_bytes: int
    kept_bytes: int
    checksum: str | None

def layout_read(path: str) -> LayoutDocument: ...
def layout_parse(text: str) -> LayoutDocument: ...
def layout_check(path: str, pool_file: str) -> LayoutDocument: ...
def layout_present(pool_file: str, paths: list[str]) -> str: ...
def pattern_place(pattern: str) -> tuple[str, bool]: ...
def pattern_matches(pattern: str, path: str) -> bool: ...
def layout_apply(
    path: str,
    pool_file: str,
    rules: bool,
    waits: bool,
    gives_way: bool,
    progress: Callable[[str, int, int], bool | Literal["rest"]],
) -> list[Applied]: ...

class ForecastRegion(TypedDict):
    offset: int
    round: list[str]

class ForecastFile(TypedDict):
    path: str
    before: list[ForecastRegion]
    after: list[ForecastRegion]
    copied_bytes: int
    kept_bytes: int
    size_bytes: int

class ForecastOrWhy(TypedDict):
    """What an `apply` would do to one file."""

    path: str
    """As it stands in the layout file."""
    file: ForecastFile | None
    """`None`: no file is there, or it cannot move."""
    why: str | None
    """It cannot move."""

class ForecastServer(TypedDict):
    server: str
    free_bytes: int | None
    """What an ordinary user can write; `None` where its file system does not say. Servers on one of them share it."""
    free_after_bytes: int | None

class Forecast(TypedDict):
    """What an `apply` would do."""

    files: list[ForecastFile]
    rules: list[str]
    servers: list[ForecastServer]

def layout_forecast(path: str, pool_file: str) -> Forecast: ...
def layout_forecasts(texts: list[str], pool_file: str) -> list[ForecastOrWhy]: ...

class RulesSnapshot:
    def restore(self) -> None: ...

def rules_snapshot(pool_file: str, path: str) -> RulesSnapshot: ...
def file_stat(pool_file: str, path: str) -> dict[str, Any]: ...

# Hints

class OptimisationParameter(TypedDict):
    """A parameter of an optimisation; its values as people write them."""

    name: str
    least: str
    most: str
    multiple: str
    default: str

class Optimisation(TypedDict):
    """An optimisation that a hint can name."""

    index: int
    name: str
    form: str
    """How it is written."""
    parameters: list[OptimisationParameter]
    does: str

class Hint(TypedDict):
    """What files get whose name matches."""

    pattern: str | None
    """`None`: all names."""
    optimisations: list[str]

class HintedLayout(TypedDict):
    """A rule for files that are made in a directory or below it."""

    pattern: str
    """Below the directory."""
    layout: str
    """In one line."""

class Hints(TypedDict):
    """All hints of a directory: that of all names first, then the oldest pattern first."""

    version: int
    hints: list[Hint]
    layouts: list[HintedLayout]
    """Rules, the oldest first: of hints, and of `apply` for files below the directory alone."""

class PathNotTaken(TypedDict):
    """A path that a file's handle asks for, and an open has not taken."""

    path: str
    reason: str
    because: str
    """The reason in words."""

class OpenTaken(TypedDict):
    """What an open has taken."""

    taken: list[str]
    """The paths of its requests."""
    not_taken: list[PathNotTaken]
    past_the_mount: bool
    """Whether its program was told where the bytes are, and reads and writes them by itself."""
    served_by_kernel: bool
    """Whether the kernel reads and writes the file by itself, and no request on its bytes comes to the mount."""

class MountOpens(TypedDict):
    """What a mount knows of the opens of a file."""

    mount: str
    opens: int
    """Those that are there."""
    writing: int
    """Those of them that may write."""
    read: OpenTaken | None
    """The last one for reading alone, if the mount still knows it."""
    written: OpenTaken | None
    """The last one for writing, if the mount still knows it."""

class PathTaken(TypedDict):
    """Why the requests on a file go where they go."""

    size_bytes: int
    head_bytes: int | None
    """How many of its first bytes are in its inode; `None`: all."""
    has_handle: bool
    made_with: list[str]
    """What it was given when it was made, or later by itself."""
    version: int
    """That of its handle: 1 until its layout or its optimisations change."""
    reads_ahead: bool
    """Whether what is open for reading alone is read ahead, as long as the file has no writer."""
    writes_behind: bool
    """Whether small writes one behind the other are gathered, and go to the servers in whole stripes."""
    cached: bool
    """Whether kernels keep what is read of it, as long as the file has no writer."""
    has_writer: bool
    """Whether some process has it open for writing, or moves it, at this moment."""
    kept: bool
    """Whether a kernel keeps what was read of it for an open of this moment."""
    rank: int
    """How far behind its requests are served while an orchestrator is at work; 0: with all others."""
    direct_least_bytes: int | None
    rule: str | None
    """The pattern of the rule that names the layout of a new file of its path."""
    has_layout_of_rule: bool
    """Whether the layout of that rule is the one that it has."""
    landed_on: str | None
    """The tier on which it has landed, until it moves to its place."""
    hinted_now: list[str]
    hints_version: int
    hints_fault: str | None
    """Why the hints of its directory cannot be read or understood, so that they say nothing."""
    opens: list[MountOpens]
    """For each mount of the pool that this process sees."""

def optimisation_table() -> list[Optimisation]: ...
def hints_of(pool_file: str, path: str) -> Hints: ...
def file_optimise(pool_file: str, path: str, setting: str) -> bool: ...
def is_file(pool_file: str, path: str) -> bool: ...
def file_hint(pool_file: str, path: str, settings: list[str]) -> None: ...
def file_unhint(pool_file: str, path: str, names: list[str]) -> bool: ...
def hint_set(pool_file: str, path: str, pattern: str | None, settings: list[str]) -> Hints: ...
def hint_remove(pool_file: str, path: str, pattern: str | None, names: list[str]) -> bool: ...
def hints_remove_all(pool_file: str, path: str) -> None: ...
def path_taken(pool_file: str, path: str, said: list[tuple[str, str]]) -> PathTaken: ...

# Open files

Attributes = tuple[int, int, int, int, int, int, int]
"""Mode with the kind, links, size in bytes, inode; times of access, change and status in nanoseconds."""

class PoolFiles:
    def __init__(self, pool_file: str) -> None: ...
    def open(self, path: str, flags: int, mode: int) -> OpenFile: ...
    def stat(self, path: str, follow: bool) -> Attributes: ...
    def list(self, path: str) -> list[str]: ...
    def make_directory(self, path: str, mode: int) -> None: ...
    def remove_directory(self, path: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def rename(self, source: str, target: str, flags: int) -> None: ...

class OpenFile:
    def read_into(self, buffer: Buffer, offset: int | None) -> int: ...
    def write_from(self, buffer: Buffer, offset: int | None) -> int: ...
    def seek(self, offset: int, whence: int) -> int: ...
    def truncate(self, size_bytes: int) -> None: ...
    def sync(self, data_only: bool) -> None: ...
    def stat(self) -> Attributes: ...
    def layout(self) -> builtins.list[tuple[int, builtins.list[tuple[str, int]]]]: ...
    def close(self) -> None: ...

# Planning

class RegionCosts(TypedDict):
    default: float
    harl: float | None
    plan: float

class PlannedRegion(TypedDict):
    offset: int
    end: int
    round_before: list[str]
    round: list[str]
    cost_s: RegionCosts
    requests: float
    read_bytes: float
    write_bytes: float

class PlannedFile(TypedDict):
    path: str
    regions: list[PlannedRegion]

class PlannedSpace(TypedDict):
    tier: str
    servers: int
    default_bytes: int
    planned_bytes: int
    capacity_bytes: int | None

class ComparedPlanner(TypedDict):
    """Losses are shares by which a time is above the winner's: 0.25 is a quarter longer."""

    planner: str
    regions: int | None
    predicted_s: float | None
    predicted_loss: float | None
    simulated_s: float | None
    simulated_loss: float | None
    excess_bytes: int | None
    error: str | None

class PlannerComparison(TypedDict):
    planners: list[ComparedPlanner]
    why: list[str]
    simulations: int | None

class Planner(TypedDict):
    name: str
    source: str
    summary: str

class ProposedHint(TypedDict):
    """A hint for new files of a directory, which the model finds to gain for files like those of the run."""

    directory: str
    """Below the mount; empty for that itself."""
    pattern: str | None
    optimisation: str
    files: int
    now_s: float
    then_s: float

class PlanDocument(TypedDict):
    planner: str
    kept_default: bool
    comparison: PlannerComparison | None
    layout: str
    changes: bool
    processes: float
    phases: int
    cuts_s: list[float]
    bytes: int
    sampled: str | None
    limited_by_space: str | None
    """Which servers are short of room, and what that costs the plan; `None` where it costs nothing."""
    hints: list[ProposedHint]
    """Of a cluster none."""
    cost_s: RegionCosts
    files: list[PlannedFile]
    space: list[PlannedSpace]

class Rates(TypedDict):
    read: float
    write: float
    both: float

class BeforeAfter(TypedDict):
    before: Rates
    after: Rates

class PredictedFile(TypedDict):
    path: str
    regions: list[BeforeAfter]

class Prediction(TypedDict):
    total: BeforeAfter
    files: list[PredictedFile]

def plan(
    trace: Trace,
    pool_file: str,
    root: str,
    *,
    planner: str = "auto",
    processes: float | None = None,
    max_regions: int | None = None,
) -> PlanDocument: ...
def hints_for(trace: Trace, pool_file: str, root: str) -> list[ProposedHint]: ...

class ClusterPlanDocument(PlanDocument):
    root: str
    """The directory that paths in the layout are relative to."""

def plan_on_cluster(
    trace: Trace,
    cluster: str,
    *,
    root: str | None = None,
    planner: str = "auto",
    processes: float | None = None,
    max_regions: int | None = None,
) -> ClusterPlanDocument: ...
def planners() -> list[Planner]: ...
def predict(trace: Trace, pool_file: str, root: str, layout: str, cuts_s: list[float]) -> Prediction: ...

# Advice

class AdviseGain(TypedDict):
    ratio: float
    low: float
    high: float

class AdviseFinding(TypedDict):
    kind: str
    severity: Literal["low", "medium", "high"]
    words: str
    numbers: dict[str, float]
    mend: list[str]
    hints: dict[str, str]

class FileHints(TypedDict):
    path: str
    hints: list[tuple[str, str]]

class AdviseRegion(TypedDict):
    offset: int
    round: list[str]

class AdviseBottleneck(TypedDict):
    kind: Literal[
        "slow-server",
        "one-server",
        "imbalance",
        "slow-tier",
        "startups",
        "latency",
        "bandwidth",
        "memory",
        "nothing",
    ]
    words: str
    servers: list[str]
    startup_share: float
    imbalance: float
    servers_used: int

class AdvisePlaced(TypedDict):
    layout: list[AdviseRegion]
    """Of the first of the files."""
    spread: bool
    """The others are on other servers, striped alike."""
    bytes_per_s: float
    bottleneck: AdviseBottleneck

class AdvisePresent(AdvisePlaced):
    source: Literal["log", "pool", "default"]

class AdviseSpace(TypedDict):
    tier: str
    present_bytes: int
    recommended_bytes: int
    capacity_bytes: int | None

class AdviseJob(TypedDict):
    command: str | None
    user: str | None
    id: str | None
    processes: int
    nodes: int | None
    run_s: float | None
    run_known: bool
    """Else from the first request to the last."""
    read_bytes: int
    written_bytes: int
    copied_bytes: int
    """By the kernel from file to file: neither read nor written by the program."""
    requests: int
    slowest_s: float | None
    """Of the process that reads and writes longest; null where the log does not time requests."""
    bytes_per_s: float | None
    """Measured: all bytes in that time."""
    data_s: float
    """Of the mean process."""
    meta_s: float
    io_share: float | None
    slowest_share: float | None

class AdviseHeldOut(TypedDict):
    ratio: float
    low: float
    high: float

class AdviseProfile(TypedDict):
    tier: str
    op: Literal["read", "write"]
    from_s: float | None
    """In the log; null from its begin, and where they are as fast all the time."""
    startup_s: float
    bytes_per_s: float

class AdviseReproduced(TypedDict):
    factor: float
    """Time of the slowest process, predicted over measured."""
    refused: str | None
    held_out: AdviseHeldOut | None
    memory_share: float
    profiles: list[AdviseProfile]

class AdviseFile(TypedDict):
    """Files of one kind: a path, or a pattern where there are several."""

    path: str
    files: int
    read_bytes: int
    written_bytes: int
    requests: int
    ranks: int
    counters_only: bool
    named: bool
    """Layout files and commands of the servers' file system can name them, and are for them."""
    factor: float | None
    """Time of the requests, predicted over measured."""
    present: AdvisePresent
    recommended: AdvisePlaced | None
    change: bool
    reason: str | None
    gain: AdviseGain
    space: list[AdviseSpace]
    findings: list[AdviseFinding]

class AdviseDirectory(TypedDict):
    path: str
    files: int
    bytes: int
    change: bool
    layout: list[AdviseRegion] | None

class AdviseTotal(TypedDict):
    bytes: int
    files: int
    left_out: int
    change: bool
    present_bytes_per_s: float
    recommended_bytes_per_s: float
    gain: AdviseGain
    run_gain: AdviseGain | None
    """Of the whole run, at most."""
    reasons: list[str]
    """Why the interval is as wide as it is."""
    space: list[AdviseSpace]
    findings: list[AdviseFinding]

class AdviseCluster(ClusterInfo):
    found: bool
    """From the log's own Lustre layouts, or by their number alone."""
    known_from: Literal["cluster", "log", "number", "unknown"]
    targets: int | None
    """From the log's own Lustre layouts."""

class AdviseLack(TypedDict):
    name: str
    words: str

class AdviseAbout(TypedDict):
    format: str
    lacks: list[AdviseLack]
    notes: list[str]
    processes: int | None

class AdviseRule(TypedDict):
    name: str
    words: str
    bytes_per_s: float
    gain: AdviseGain

class AdviceDocument(TypedDict):
    cluster: AdviseCluster
    root: str
    about: AdviseAbout
    job: AdviseJob
    reproduced: AdviseReproduced | None
    lacking: str | None
    planner: str
    processes_in_flight: float
    files: list[AdviseFile]
    directories: list[AdviseDirectory]
    total: AdviseTotal
    layout: str
    rules: list[AdviseRule]
    hints: list[ProposedHint]

def advise(
    trace: Trace,
    cluster: str | None = None,
    *,
    root: str | None = None,
    planner: str | None = None,
    preset: str = "hdd-7200",
    osts: int | None = None,
    layout: str | None = None,
    origin: str = "the layout",
    passes: Callable[[bytes], Iterable[bytes]] | None = None,
    rules: bool = False,
    hints: bool = False,
) -> AdviceDocument: ...
def job_facts(trace: Trace, *, passes: Callable[[bytes], Iterable[bytes]] | None = None) -> AdviseJob: ...
def io_hints(trace: Trace) -> list[FileHints]: ...
def advise_pass(trace: Trace, question: bytes) -> bytes: ...

# What reports draw

class Load(TypedDict):
    requests: int
    bytes: int
    service_s: float

class ProcessAccess(TypedDict):
    program: int
    rank: int
    pid: int
    """0 where it is not known."""
    reads: Load
    writes: Load

SizeAccess = TypedDict("SizeAccess", {"from": int, "reads": Load, "writes": Load})

class FileAccess(TypedDict):
    file: int
    extent_bytes: int
    min_bytes: int
    max_bytes: int
    processes: int
    reads: Load
    writes: Load

PlaneAxis = TypedDict("PlaneAxis", {"from": int, "cell": int, "cells": int})

class Plane(TypedDict):
    """Rows x columns; `down` is the axis of rows."""

    across: PlaneAxis
    down: PlaneAxis
    reads: npt.NDArray[np.uint64]
    writes: npt.NDArray[np.uint64]

class FileMap(TypedDict):
    file: int
    heat: Plane
    """Bytes by time in ns and offset."""
    sizes: Plane
    """Requests by offset and size, in quarters of an octave."""

class Access(TypedDict):
    lost: int
    start_s: float
    end_s: float
    processes: list[ProcessAccess]
    sizes: list[SizeAccess]
    files: list[FileAccess]
    process_time: Plane
    """Bytes by time in ns and place in `processes`."""
    maps: list[FileMap]
    """Of the files of which most bytes were moved, the first first."""

def access(trace: Trace, *, most: int, columns: int, rows: int, progress: Callable[[int, int], object]) -> Access: ...

class LoadedFile(TypedDict):
    file: int
    path: str
    known: bool
    """Whether log or pool tell where it is now."""
    present: list[RegionInfo]
    layout: list[RegionInfo]

class LoadedSide(TypedDict):
    requests: int
    bytes: int
    busy_s: float | None

class LoadedServer(TypedDict):
    name: str
    tier: str
    present: LoadedSide
    layout: LoadedSide

class LoadedProcess(TypedDict):
    program: int
    rank: int
    pid: int
    present_s: float
    layout_s: float

class LoadedTotal(TypedDict):
    time_s: float
    bytes_per_s: float

class LoadedTotals(TypedDict):
    present: LoadedTotal
    layout: LoadedTotal

class ServerLoad(TypedDict):
    name: str
    root: str
    tiers: list[str]
    files: list[LoadedFile]
    servers: list[LoadedServer]
    processes: list[LoadedProcess] | None
    simulated: LoadedTotals | None

def server_load(
    trace: Trace,
    cluster: str | None,
    layout: str,
    origin: str,
    *,
    root: str | None = None,
    preset: str = "hdd-7200",
    osts: int | None = None,
) -> ServerLoad: ...

# Simulation of traces

class SimulationAround(TypedDict):
    queue: list[str]
    wait: str
    near: str
    seek: list[str]
    link: str | None
    client_link: str | None
    processes_per_node: int | None
    latency: str
    pipelined: bool
    metadata: str | None
    think: bool
    repeat: int
    seed: int
    bins: int

class Estimate(TypedDict):
    mean: float
    half_width: float | None

class ReplayedLatency(TypedDict):
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float

class ReplayedServer(TypedDict):
    name: str
    requests: int
    bytes: int
    busy_s: Estimate
    waiting_s: float
    startup_s: float
    longest_queue: int
    link_in_busy_s: float
    link_out_busy_s: float

class ReplayedServerBins(TypedDict):
    name: str
    busy: list[float]
    queue: list[float]
    bytes: list[int]

class ReplayedTimeline(TypedDict):
    bin_s: float
    throughput: list[float]
    read_bytes: list[int]
    written_bytes: list[int]
    servers: list[ReplayedServerBins]

class ReplayedSide(TypedDict):
    throughput: Estimate
    makespan_s: Estimate
    read_bytes: int
    written_bytes: int
    sub_requests: int
    latency: dict[str, Estimate]
    reads: ReplayedLatency
    writes: ReplayedLatency
    servers: list[ReplayedServer]
    nodes: list[dict[str, float]]
    metadata: dict[str, float]
    timeline: ReplayedTimeline | None

class SimulationDocument(TypedDict):
    files: list[str]
    processes: int
    nodes: int
    traced_s: float
    phases: int
    collectives: int
    requests: int
    runs: int
    seed: int
    present: ReplayedSide
    layout: ReplayedSide | None
    ratio: Estimate | None

def simulate(
    trace: Trace, pool_file: str, root: str, layout: str | None, around: SimulationAround
) -> SimulationDocument: ...
def simulate_on_cluster(
    trace: Trace, cluster: str, root: str | None, layout: str | None, around: SimulationAround
) -> SimulationDocument: ...

# Programs that run at once

class ProgramAlone(TypedDict):
    name: str
    processes: int
    bytes: int
    begin_s: float
    alone_s: Estimate
    servers: list[str]

class PolicyOutcome(TypedDict):
    """Lists are in the order of the programs."""

    policy: str
    makespan_s: Estimate
    throughput: Estimate
    took_s: list[Estimate]
    slowdowns: list[Estimate]
    waited_s: list[float]
    fairness: Estimate

class ProgramPair(TypedDict):
    programs: list[str]
    overlap_s: float
    servers: list[str]
    slowdowns: list[Estimate]

class ConcurrentPrograms(TypedDict):
    runs: int
    seed: int
    window_s: float
    programs: list[ProgramAlone]
    policies: list[PolicyOutcome]
    pairs: list[ProgramPair]
    pairs_left: int

def together(
    traces: list[tuple[str, Trace]],
    servers: str,
    root: str | None,
    policies: list[str],
    window: str,
    weights: dict[str, float],
    limits: dict[str, int],
    *,
    as_recorded: bool,
    pairs: bool,
    around: SimulationAround,
) -> ConcurrentPrograms: ...

# Workloads and devices that are described instead of recorded

class Devices(TypedDict):
    """Servers of one profile; an operation is its least and greatest startup and its seconds per byte."""

    name: str
    servers: int
    read: tuple[float, float, float]
    write: tuple[float, float, float]
    network_s_per_byte: float

class Steps(TypedDict):
    """One row a step; `kind` is 0 (read), 1 (write) or 2 (barrier)."""

    process: npt.NDArray[np.uint32]
    file: npt.NDArray[np.uint32]
    offset: npt.NDArray[np.uint64]
    size: npt.NDArray[np.uint64]
    kind: npt.NDArray[np.uint8]
    think_s: npt.NDArray[np.float64]

Regions = list[tuple[int, list[tuple[int, int]]]]
"""A layout: offset of each region, and its round of servers (by number) and widths in bytes."""

class SimulatedServer(TypedDict):
    requests: int
    bytes: int
    busy_s: float
    waiting_s: float
    link_busy_s: float

class SimulatedLatency(TypedDict):
    mean: float
    p50: float
    p99: float
    max: float

class Simulated(TypedDict):
    makespan_s: float
    read_bytes: int
    written_bytes: int
    bytes_per_s: float
    latency_s: SimulatedLatency
    barriers_s: list[float]
    servers: list[SimulatedServer]

class Price(TypedDict):
    theta_s: float
    latency_s: float
    bottleneck_s: float

def simulate_generated(
    cluster: list[Devices],
    layouts: list[Regions],
    steps: Steps,
    *,
    seed: int = 1,
    network: str = "link",
    stroke_bytes: int | None = None,
) -> Simulated: ...
def price_generated(cluster: list[Devices], layouts: list[Regions], steps: Steps, processes: float) -> Price: ...

class HashedObjects(TypedDict):
    """Objects whose servers are chosen by a hash, filled in stripes over `count` of them at a time."""

    unit_bytes: int
    count: int
    object_bytes: int
    servers: list[int]

def price_native(
    cluster: list[Devices], files: list[Regions | HashedObjects], steps: Steps, processes: float
) -> float: ...
def plan_generated(
    cluster: list[Devices], steps: Steps, planner: str, *, default_width_bytes: int = 65536, network: str = "link"
) -> list[Regions]: ...
def plan_harl_generated(cluster: list[Devices], steps: Steps, epsilon: float) -> list[Regions]: ...
def equal_depth_generated(cluster: list[Devices], steps: Steps, round_bytes: int, block_bytes: int) -> list[int]: ...
def chen_costs(
    processes: int, servers: int, startup_s: float, part_s: float
) -> tuple[float, float, float, tuple[int, float]]: ...
