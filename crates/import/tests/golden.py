"""What PyDarshan reads in logs, as one line each of figures and checksums: `python golden.py LOG... > darshan.golden`.

Needs the package `darshan` (3.5). The test computes the same from our import.
"""

import math
import struct
import sys
import zlib
from pathlib import Path

import darshan

# Counters that older versions of the records do not have; PyDarshan fills them in.
SINCE = {
    "POSIX_FILENOS",
    "POSIX_DUPS",
    "POSIX_RENAME_SOURCES",
    "POSIX_RENAME_TARGETS",
    "POSIX_RENAMED_FROM",
    "POSIX_F_CLOSE_START_TIMESTAMP",
    "POSIX_F_OPEN_END_TIMESTAMP",
    "MPIIO_F_CLOSE_START_TIMESTAMP",
    "MPIIO_F_OPEN_END_TIMESTAMP",
    "STDIO_FDOPENS",
}


def nanoseconds(seconds: float) -> int:
    """Seconds as nanoseconds, a half upwards."""
    exact = max(seconds, 0.0) * 1e9
    below = math.floor(exact)
    return below + 1 if exact - below >= 0.5 else below


def unsigned(number: int) -> int:
    """The identifier as the log has it: frames have it signed or not."""
    return int(number) & (1 << 64) - 1


def main() -> None:
    """Print the lines of every log that is named."""
    for path in sys.argv[1:]:
        report = darshan.DarshanReport(path, read_all=False)
        found = darshan.backend.cffi_backend.log_get_name_records(report.log)
        names = {unsigned(i): name for i, name in found.items()}

        def name(i: int, names: dict[int, str] = names) -> bytes:
            return names.get(unsigned(i), f"darshan-record-{unsigned(i)}").encode()

        job = report.metadata["job"]
        print("log", Path(path).name, "processes", job["nprocs"], "start", job["start_time_sec"])
        for module in ("DXT_POSIX", "DXT_MPIIO"):
            count = moved = crc = 0
            if module in report.modules:
                report.mod_read_all_dxt_records(module)
                for record in report.records[module].to_df():
                    file = name(record["id"])
                    for op, key in ((4, "write_segments"), (3, "read_segments")):
                        for s in record[key].to_dict("records"):
                            start = nanoseconds(s["start_time"])
                            end = max(start, nanoseconds(s["end_time"]))
                            row = struct.pack("<BIQQQQ", op, record["rank"], s["offset"], s["length"], start, end)
                            crc = zlib.crc32(file + row, crc)
                            count += 1
                            moved += s["length"]
            print(module, "segments", count, "bytes", moved, "crc", f"{crc:08x}")
        for module in ("POSIX", "MPI-IO", "STDIO"):
            count = crc = 0
            if module in report.modules:
                report.mod_read_all_records(module, dtype="dict")
                for record in report.records[module]:
                    crc = zlib.crc32(name(record["id"]) + struct.pack("<q", record["rank"]), crc)
                    for key, value in record["counters"].items():
                        if key not in SINCE:
                            crc = zlib.crc32(key.encode() + struct.pack("<q", value), crc)
                    for key, value in record["fcounters"].items():
                        if key not in SINCE:
                            crc = zlib.crc32(key.encode() + struct.pack("<d", value), crc)
                    count += 1
            print(module, "records", count, "crc", f"{crc:08x}")
        seen = {}
        if "LUSTRE" in report.modules:
            report.mod_read_all_lustre_records()
            for c in report.records["LUSTRE"].to_df()["components"].to_dict("records"):
                seen.setdefault((int(c["id"]), int(c["rank"])), []).append(c)
        files = {}
        for (i, _), components in seen.items():
            files.setdefault(i, components)
        crc = 0
        for i, components in files.items():
            for c in components:
                osts = " ".join(str(o) for o in c["LUSTRE_OST_IDS"] if o >= 0)
                text = f"{c['LUSTRE_COMP_EXT_START']} {c['LUSTRE_COMP_EXT_END']} {c['LUSTRE_COMP_STRIPE_SIZE']} "
                text += f"{c['LUSTRE_COMP_STRIPE_COUNT']} {c['LUSTRE_POOL_NAME']} {osts}"
                crc = zlib.crc32(name(i) + text.encode(), crc)
        print("LUSTRE files", len(files), "crc", f"{crc:08x}")


main()
