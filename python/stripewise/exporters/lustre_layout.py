"""Lustre's layouts: components and the limits of `lfs`, its library and the metadata server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stripewise.exporters.exporter import KIB64, RefusedError
from stripewise.units import exact_bytes

MOST_STRIPE = (1 << 32) - KIB64
"""A stripe size has 32 bits and is a multiple of 64 KiB (`llapi_stripe_size_is_too_big`)."""

MOST_STRIPES = 2000
"""Stripes of a component (`LOV_MAX_STRIPE_COUNT`)."""

MOST_LISTED = 1999
"""OSTs in a list (`lsa_args_stripe_count_check`: fewer than 2000)."""

MOST_COMPONENTS = 16
"""More are possible, but every open reads them all."""

MOST_LAYOUT_BYTES = 65_536
"""A layout is an extended attribute (`XATTR_SIZE_MAX`)."""

MOST_DOM = 1 << 30
"""Largest value of `lod.*.dom_stripesize`."""

DOM_DEFAULT = 1 << 20
"""Default of `lod.*.dom_stripesize`."""

RESERVED_POOLS = ("ignore", "inherit", "none")


@dataclass(frozen=True)
class Component:
    """A component of a composite layout, or a plain layout if there is only one."""

    start: int
    end: int | None
    """`None`: to the end of the file (eof)."""
    unit: int
    """Stripe size; of data on the metadata target the component's end."""
    count: int
    """Stripes; 0 on the metadata target."""
    pool: str | None = None
    osts: tuple[int, ...] = ()
    """OST of each stripe, repeats are overstriping; the server chooses where there are none."""
    is_mdt: bool = False


def check(components: Sequence[Component]) -> None:
    """Raises `RefusedError` for what `lfs`, `liblustreapi` or the metadata server do not take, or would cut short."""
    if not components:
        raise RefusedError("a layout without components")
    if len(components) > MOST_COMPONENTS:
        raise RefusedError(f"{len(components)} components: at most {MOST_COMPONENTS}")
    before = 0
    for at, component in enumerate(components):
        _check_component(component, at)
        if component.start != before:
            raise RefusedError(f"a component starts at {exact_bytes(component.start)}, not at {exact_bytes(before)}")
        if component.end is None:
            if at + 1 < len(components):
                raise RefusedError("a component without an end is not the last")
            break
        if component.end <= component.start:
            raise RefusedError(f"a component ends at {exact_bytes(component.end)}, not after its start")
        if component.end % KIB64 or component.end % component.unit:
            raise RefusedError(
                f"a component ends at {exact_bytes(component.end)}: no multiple of 64KiB and of its stripe size "
                f"{exact_bytes(component.unit)}"
            )
        if component.end >= 1 << 63:
            raise RefusedError("a component ends beyond the largest offset")
        before = component.end
    else:
        raise RefusedError("no component to the end of the file: a write past the last would fail")
    # The header, then an entry, a layout with the name of a pool, and an object a stripe.
    size = 32 + sum(48 + 48 + 24 * component.count for component in components)
    if size > MOST_LAYOUT_BYTES:
        raise RefusedError(f"the layout takes {size} bytes of at most {MOST_LAYOUT_BYTES}: use fewer or wider stripes")


def _check_component(component: Component, at: int) -> None:
    unit, count = component.unit, component.count
    if unit <= 0 or unit % KIB64 or unit > MOST_STRIPE:
        raise RefusedError(f"stripe size {exact_bytes(unit)}: Lustre takes multiples of 64KiB below 4GiB")
    if component.is_mdt:
        if at > 0 or component.end is None:
            raise RefusedError("only a file's first component can be on the metadata target, with an end")
        if count or component.osts or component.pool is not None:
            raise RefusedError("a component on the metadata target has no stripes, OSTs or pool")
        if unit != component.end or unit > MOST_DOM:
            raise RefusedError(f"a component on the metadata target is one stripe, of at most {exact_bytes(MOST_DOM)}")
        return
    if not 1 <= count <= MOST_STRIPES:
        raise RefusedError(
            f"{count} stripes in a component: Lustre takes 1 to {MOST_STRIPES}; use fewer servers in a region"
        )
    if component.osts and (len(component.osts) != count or count > MOST_LISTED):
        raise RefusedError(f"{len(component.osts)} OSTs for {count} stripes: as many are listed, at most {MOST_LISTED}")
    pool = component.pool
    if pool is not None and (not re.fullmatch(r"[A-Za-z0-9_-]{1,15}", pool) or pool in RESERVED_POOLS):
        raise RefusedError(
            f"pool {pool!r}: Lustre's pools have 1 to 15 letters, digits, '_' and '-', and are not called "
            f"{', '.join(RESERVED_POOLS)}; --pool-map names another"
        )
