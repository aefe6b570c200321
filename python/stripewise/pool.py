"""A pool: servers in tiers, a namespace, and the path where programs see the files."""

from dataclasses import dataclass
from pathlib import Path

from stripewise import _native


@dataclass(frozen=True)
class OpProfile:
    """What a read or a write costs on a server: startup time, then a time per byte."""

    startup_min_s: float
    startup_max_s: float
    sequential_startup_s: float | None
    """Where the last request ended; `None` for a server without a head."""
    ahead_bytes: int
    """Bytes of a stream that one move of the head serves, whatever comes between."""
    bandwidth_bytes_per_s: float

    def mean_s(self, size_bytes: int) -> float:
        """What a request of that size costs."""
        return (self.startup_min_s + self.startup_max_s) / 2 + size_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Server:
    """A directory that holds datafiles."""

    id: int
    name: str
    """`<tier>.<index>`, as in layouts."""
    path: Path
    state: str
    """`used`, or `draining`: it takes no new file."""
    seeks: tuple[tuple[int, float], ...] = ()
    """Gap in bytes and seconds of a seek over it, by gap; empty where that was not measured."""


@dataclass(frozen=True)
class Tier:
    """Servers of one profile."""

    name: str
    servers: tuple[Server, ...]
    capacity_bytes: int | None
    """Per server; `None` is no limit."""
    emulated: bool
    """Whether its servers only stand for devices."""
    dilation: float
    """All times of an emulated device are multiplied by it."""
    read: OpProfile | None
    """What the planner reckons with, `None` before calibration of a real device."""
    write: OpProfile | None
    profile_source: str
    """Where the profile is from: `pool file`, `emulation`, `none`, or the device that it is taken for."""

    @classmethod
    def of(cls, raw: "_native.TierInfo") -> "Tier":
        """The tier that `pool_load` describes so."""
        return cls(
            name=raw["name"],
            servers=tuple(
                Server(
                    s["id"],
                    s["name"],
                    Path(s["path"]),
                    s["state"],
                    tuple((int(gap_bytes), startup_s) for gap_bytes, startup_s in s["seeks"]),
                )
                for s in raw["servers"]
            ),
            capacity_bytes=raw["capacity_bytes"],
            emulated=raw["emulated"],
            dilation=raw["dilation"],
            read=OpProfile(**raw["read"]) if raw["read"] else None,
            write=OpProfile(**raw["write"]) if raw["write"] else None,
            profile_source=raw["profile_source"],
        )


def file_of(path: Path) -> Path:
    """The pool file that `path` names: itself, or the `pool.toml` of a directory."""
    return path / "pool.toml" if path.is_dir() else path


@dataclass(frozen=True)
class Pool:
    """A pool as its file describes it."""

    file: Path
    name: str
    mount: Path
    namespace: Path
    default_width_bytes: int
    land: str | None
    """The tier on which new files are made first; `None`: in their place at once."""
    land_mark: float | None
    """How full that tier may be, as a part of its room, before files leave it in any case."""
    keeps_heat: bool
    tiers: tuple[Tier, ...]
    meta: Tier
    """The metadata tier: its one server is the namespace."""
    meta_at_once: int = 1
    """Requests that the metadata tier serves side by side."""

    @classmethod
    def load(cls, file: Path) -> "Pool":
        """Reads a pool file, or the `pool.toml` of a directory.

        Raises `StripewiseError` that names the line of a mistake.
        """
        file = file_of(file)
        raw = _native.pool_load(str(file.absolute()))
        return cls(
            file=file.absolute(),
            name=raw["name"],
            mount=Path(raw["mount"]),
            namespace=Path(raw["namespace"]),
            default_width_bytes=raw["default_width_bytes"],
            land=raw["land"],
            land_mark=raw["land_mark"],
            keeps_heat=raw["keeps_heat"],
            tiers=tuple(Tier.of(tier) for tier in raw["tiers"]),
            meta=Tier.of(raw["meta"]),
            meta_at_once=raw["meta_at_once"],
        )

    @property
    def is_emulated(self) -> bool:
        """Whether any of its servers is emulated: then every figure has to say so."""
        return any(tier.emulated for tier in (*self.tiers, self.meta))

    @property
    def servers(self) -> tuple[Server, ...]:
        """All servers in order of id."""
        return tuple(server for tier in self.tiers for server in tier.servers)

    def require_profiles(self) -> None:
        """Raises `StripewiseError` where a tier has no profile, so that nothing can be predicted."""
        without = [tier.name for tier in self.tiers if tier.profile_source == "none"]
        if without:
            raise _native.StripewiseError(
                f"tier {', '.join(without)} has no profile, so nothing can be predicted; "
                f"run `stripewise pool calibrate {self.file}`"
            )

    @property
    def label(self) -> str:
        """`emulated servers`, `real servers` or both, for the head of an output."""
        kinds = {tier.emulated for tier in self.tiers} | ({True} if self.meta.emulated else set())
        if kinds == {True}:
            return "emulated servers"
        return "real servers" if kinds == {False} else "real and emulated servers"
