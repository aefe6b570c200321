"""Quantities as people read them. Reading them is the Rust crates' part (`stripewise._native.parse_bytes`)."""


def exact_bytes(count: int) -> str:
    """The largest binary unit that divides `count` bytes: `64KiB`, `1536B`."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return f"{count}B"


def about_bytes(count: float) -> str:
    """`count` bytes to three digits or so: `2.0 GiB`, `640 KiB`, `12 B`."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            value = count / factor
            return f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
    return f"{count:.0f} B"


def mb_per_s(bytes_per_s: float) -> str:
    """A bandwidth as makers of disks give it, in MB/s: `140`, `3.25`, `40,000`."""
    value = bytes_per_s / 1e6
    return f"{value:.4g}" if value < 9999.5 else f"{value:,.0f}"


def mib_per_s(bytes_per_s: float) -> str:
    """A throughput in MiB/s: `61.3`, `420`."""
    value = bytes_per_s / (1 << 20)
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def seconds(value: float) -> str:
    """A time with its unit: `4.00 ms`, `12.3 s`, `90 us`; with a minus what is lost."""
    if value < 0:
        return f"-{seconds(-value)}"
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 1:
        return f"{value:.2f} s"
    if value >= 1e-3:
        return f"{value * 1e3:.2f} ms"
    return f"{value * 1e6:.1f} us"


def ratio(value: float) -> str:
    """A factor to three digits or so: `4.12x`, `162x`, `0.0065x`."""
    if 0 < value < 0.001:
        return "under 0.001x"
    if 0 < value < 0.095:
        return f"{value:.2g}x"
    if value < 9.995:
        return f"{value:.2f}x"
    return f"{value:.1f}x" if value < 99.95 else f"{value:,.0f}x"


def counted(count: int, what: str) -> str:
    """A number of things: `1 file`, `1,024 files`, `2 processes`."""
    plural = "es" if what.endswith("s") else "s"
    return f"{count:,} {what}{'' if count == 1 else plural}"
