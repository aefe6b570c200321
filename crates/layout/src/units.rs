//! Quantities as people write them: `64KiB`, `1.9ms`, `140MB/s`.
//!
//! Decimal prefixes are powers of 1000, those with an `i` powers of 1024; a bare number is in the base unit.

/// A quantity that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

const BYTES: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("KB", 1000),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (&text[..split], text[split..].trim_start())
}

/// Reads a number of bytes: `4096`, `64KiB`, `1.5GB`, `2M` (a lone K, M, G, T is binary, as for `dd` and `fio`).
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let error = || UnitError { text: text.to_owned(), expected: "a number of bytes such as 4096, 64KiB or 1.5GB" };
    let (number, unit) = number_and_unit(text);
    let factor = BYTES.iter().find(|(name, _)| *name == unit).ok_or_else(error)?.1;
    // In integers: 1.005 KB is 1005 bytes, which no binary fraction knows.
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > 20 || fraction.len() > 15 || (whole.is_empty() && fraction.is_empty()) {
        return Err(error());
    }
    let digits: u128 = format!("0{whole}{fraction}").parse().map_err(|_| error())?;
    let (scaled, parts) = (digits * u128::from(factor), 10_u128.pow(fraction.len() as u32));
    // Fractions of a byte are a mistake.
    if scaled.is_multiple_of(parts) { u64::try_from(scaled / parts).map_err(|_| error()) } else { Err(error()) }
}

/// Reads a time in seconds: `1.9ms`, `80us`, `0.1s`, `250ns`.
pub fn parse_seconds(text: &str) -> Result<f64, UnitError> {
    let error = || UnitError { text: text.to_owned(), expected: "a time such as 1.9ms, 80us or 0.1s" };
    let (number, unit) = number_and_unit(text);
    let factor = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        "" if number == "0" => 1.0,
        _ => return Err(error()),
    };
    let value = number.parse::<f64>().map_err(|_| error())? * factor;
    if value.is_finite() { Ok(value) } else { Err(error()) }
}

/// Reads a bandwidth in bytes per second: `140MB/s`, `1GiB/s`.
pub fn parse_bandwidth(text: &str) -> Result<f64, UnitError> {
    let error = || UnitError { text: text.to_owned(), expected: "a bandwidth such as 140MB/s or 1GiB/s" };
    let bytes = text.trim().strip_suffix("/s").ok_or_else(error)?;
    let (number, unit) = number_and_unit(bytes);
    let factor = BYTES.iter().find(|(name, _)| *name == unit).ok_or_else(error)?.1;
    let value = number.parse::<f64>().map_err(|_| error())? * factor as f64;
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(error()) }
}

/// Writes a number of bytes so that [`parse_bytes`] reads the same number back: the largest binary unit that divides
/// it, as in `64KiB`, `1536B`.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, factor) in [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes != 0 && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

/// Writes a time so that a person can read it and [`parse_seconds`] reads it back to six digits.
pub fn format_seconds(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "us"),
        s => (s * 1e9, "ns"),
    };
    format!("{}{unit}", trim_zeros(format!("{value:.6}")))
}

/// Writes a bandwidth in MB/s so that [`parse_bandwidth`] reads it back to six digits.
pub fn format_bandwidth(bytes_per_s: f64) -> String {
    format!("{}MB/s", trim_zeros(format!("{:.6}", bytes_per_s / 1e6)))
}

fn trim_zeros(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse_bytes("64KiB"), Ok(65536));
        assert_eq!(parse_bytes(" 1.5 GB "), Ok(1_500_000_000));
        assert_eq!(parse_bytes("2M"), Ok(2 << 20));
        assert_eq!(parse_bytes("1.005KB"), Ok(1005));
        assert_eq!(parse_bytes(".5KiB"), Ok(512));
        assert_eq!(parse_bytes("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_bytes("9223372036854775807"), Ok(i64::MAX as u64));
        assert_eq!(parse_seconds("1.9ms"), Ok(0.0019));
        assert_eq!(parse_bandwidth("140MB/s"), Ok(140e6));
    }

    #[test]
    fn refuses_the_rest_by_name() {
        for text in ["", "KiB", "1.5B", "-1", "64 kb", "1e3", ".", "1.2.3", "18446744073709551616", "99999999TiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert!(parse_seconds("5").is_err());
        assert!(parse_seconds(&format!("{}s", "9".repeat(400))).is_err());
        assert!(parse_bandwidth(&format!("{}MB/s", "9".repeat(400))).is_err());
        assert!(parse_bandwidth("0MB/s").is_err());
        assert_eq!(
            parse_bytes("64 kb").unwrap_err().to_string(),
            "'64 kb' is not a number of bytes such as 4096, 64KiB or 1.5GB"
        );
    }

    #[test]
    fn writes_what_it_reads() {
        for bytes in [0, 1, 1536, 65536, 1 << 40, 3 << 30, 1_500_000_000, i64::MAX as u64] {
            assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        }
        assert_eq!(format_seconds(0.0019), "1.9ms");
        assert_eq!(format_bandwidth(140e6), "140MB/s");
    }
}
