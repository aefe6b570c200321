//! Splits a line of strace into thread, time, call, arguments and result. No allocation.

/// The end of a line whose call goes on in a later one.
pub(super) const UNFINISHED: &[u8] = b"<unfinished ...>";

/// Most arguments that are looked at; no call that matters here has more.
pub(super) const MAX_ARGUMENTS: usize = 8;

/// When a line was written, in the form that it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    /// No time.
    None,
    /// `-ttt`: nanoseconds since 1970.
    Unix(u64),
    /// `-t`, `-tt`: nanoseconds since midnight.
    Clock(u64),
    /// `-r`: nanoseconds since the line before.
    Relative(u64),
}

/// Before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leader {
    /// Thread that made the call; `None` without `-f`.
    pub thread: Option<u32>,
    pub stamp: Stamp,
}

/// Below this many seconds a plain number of seconds is an interval (`-r`), from there on a time since 1970 (`-ttt`).
const UNIX_FROM_S: u64 = 100_000_000;

/// Splits the leader (process and time) from the rest. O(length of the leader).
pub(super) fn leader(line: &[u8]) -> (Leader, &[u8]) {
    let mut leader = Leader { thread: None, stamp: Stamp::None };
    let mut rest = line.trim_ascii_start();
    if let Some(inner) = rest.strip_prefix(b"[pid") {
        let (thread, after) = digits(inner.trim_ascii_start());
        let after = after_name(after);
        if let (Some(thread), Some(after)) = (thread, after.strip_prefix(b"]")) {
            leader.thread = u32::try_from(thread).ok();
            rest = after.trim_ascii_start();
        }
    } else if let (Some(thread), after) = digits(rest) {
        // A number without point or colon, then a blank: the process.
        let after = after_name(after);
        if after.first() == Some(&b' ') && thread < UNIX_FROM_S {
            leader.thread = u32::try_from(thread).ok();
            rest = after.trim_ascii_start();
        }
    }
    if let Some((stamp, after)) = stamp(rest) {
        leader.stamp = stamp;
        rest = after.trim_ascii_start();
        // `-r` beside a time of day: `(+     0.000046)`.
        if rest.starts_with(b"(+")
            && let Some(end) = memchr::memchr(b')', &rest[..rest.len().min(32)])
        {
            rest = rest[end + 1..].trim_ascii_start();
        }
    }
    (leader, rest)
}

/// Skips the name that `-Y` puts behind the process: `1234<python3>`.
fn after_name(rest: &[u8]) -> &[u8] {
    if rest.first() != Some(&b'<') {
        return rest;
    }
    memchr::memchr(b'>', &rest[..rest.len().min(128)]).map_or(rest, |end| &rest[end + 1..])
}

fn stamp(text: &[u8]) -> Option<(Stamp, &[u8])> {
    let (first, after) = digits(text);
    let first = first?;
    match after.first()? {
        b'.' => {
            let (ns, after) = fraction(&after[1..])?;
            (after.first() == Some(&b' ')).then_some(())?;
            let all = first.checked_mul(1_000_000_000)?.checked_add(ns)?;
            Some((if first >= UNIX_FROM_S { Stamp::Unix(all) } else { Stamp::Relative(all) }, after))
        }
        b':' => {
            let (minutes, after) = digits(&after[1..]);
            let (seconds, mut after) = digits(after.strip_prefix(b":")?);
            let (minutes, seconds) = (minutes.filter(|&m| m < 60)?, seconds.filter(|&s| s < 62)?);
            let mut ns = 0;
            if let Some(point) = after.strip_prefix(b".") {
                (ns, after) = fraction(point)?;
            }
            (first < 24 && after.first() == Some(&b' ')).then_some(())?;
            Some((Stamp::Clock((first * 3600 + minutes * 60 + seconds) * 1_000_000_000 + ns), after))
        }
        b' ' if first >= UNIX_FROM_S => Some((Stamp::Unix(first.checked_mul(1_000_000_000)?), after)),
        _ => None,
    }
}

/// Digits after a decimal point as nanoseconds.
fn fraction(text: &[u8]) -> Option<(u64, &[u8])> {
    let (value, after) = digits(text);
    let count = text.len() - after.len();
    (1..=9).contains(&count).then_some(())?;
    Some((value? * 10u64.pow(9 - count as u32), after))
}

/// A decimal number at the start, and what follows.
fn digits(text: &[u8]) -> (Option<u64>, &[u8]) {
    let mut value = 0u64;
    let mut count = 0;
    for &byte in text.iter().take_while(|byte| byte.is_ascii_digit()) {
        let Some(next) = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(byte - b'0'))) else {
            return (None, text);
        };
        value = next;
        count += 1;
    }
    if count == 0 { (None, text) } else { (Some(value), &text[count..]) }
}

/// A whole decimal or hexadecimal number, which may be negative.
pub(super) fn number(text: &[u8]) -> Option<i128> {
    let (negative, magnitude) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let value = if let Some(hex) = magnitude.strip_prefix(b"0x") {
        (1..=16).contains(&hex.len()).then_some(())?;
        hex.iter().try_fold(0u64, |value, &byte| Some(value << 4 | u64::from((byte as char).to_digit(16)?)))?
    } else {
        let (value, after) = digits(magnitude);
        after.is_empty().then_some(value?)?
    };
    Some(if negative { -i128::from(value) } else { i128::from(value) })
}

/// A call that returned.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub name: &'a [u8],
    arguments: [&'a [u8]; MAX_ARGUMENTS],
    /// What follows `= `, without the duration.
    pub result: &'a [u8],
    /// `-T`: how long it took, in nanoseconds.
    pub duration_ns: Option<u64>,
}

impl<'a> Call<'a> {
    /// Argument `index`, or nothing.
    pub fn argument(&self, index: usize) -> &'a [u8] {
        self.arguments.get(index).copied().unwrap_or_default()
    }

    /// Argument `index` as a number that is not negative.
    pub fn unsigned(&self, index: usize) -> Option<u64> {
        u64::try_from(number(self.argument(index))?).ok()
    }

    /// The result as a number that is not negative; `None` where the call failed or did not return.
    pub fn returned(&self) -> Option<u64> {
        let text = self.result;
        let end = text.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(text.len());
        u64::try_from(number(&text[..end])?).ok()
    }

    /// Whether it failed: `-1 ENOENT (…)`.
    pub fn failed(&self) -> bool {
        self.result.starts_with(b"-1")
    }
}

/// Takes a call apart; `None` where the text is none that has returned. O(length).
pub(super) fn call(text: &[u8]) -> Option<Call<'_>> {
    let open = text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))?;
    (open > 0 && text[open] == b'(').then_some(())?;
    let mut arguments: [&[u8]; MAX_ARGUMENTS] = [b""; MAX_ARGUMENTS];
    let mut count = 0;
    let mut begin = open + 1;
    let mut at = begin;
    let mut depth = 0u32;
    let close = loop {
        match *text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'(' | b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b')' if depth > 0 => depth -= 1,
            b'<' if opens_path(text, at) => at = path_end(text, at)?,
            byte @ (b',' | b')') if depth == 0 => {
                if count < MAX_ARGUMENTS {
                    arguments[count] = text[begin..at].trim_ascii();
                }
                count += 1;
                begin = at + 1;
                if byte == b')' {
                    break at;
                }
            }
            _ => {}
        }
        at += 1;
    };
    let rest = text[close + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let (result, duration_ns) = duration(rest);
    Some(Call { name: &text[..open], arguments, result, duration_ns })
}

/// Where the string that opens at `at` closes.
fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += 1;
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 1;
    }
}

/// `-y` puts what a descriptor is behind it: `3</a/file>`, `AT_FDCWD</tmp>`; not `1<<3`.
fn opens_path(text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|index| text[index]);
    before.is_some_and(|byte| byte.is_ascii_digit() || byte == b'D') && text.get(at + 1) != Some(&b'<')
}

/// Where the `<…>` that opens at `at` closes. Names have their angles escaped; devices nest (`<char 1:3>`), and
/// addresses have arrows (`->`).
fn path_end(text: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0u32;
    let mut from = at;
    loop {
        let next = from + memchr::memchr2(b'<', b'>', text.get(from..)?)?;
        match text[next] {
            b'<' => depth += 1,
            _ if text[next - 1] == b'-' && text.get(at + 1) != Some(&b'/') => {}
            _ if depth == 1 => return Some(next),
            _ => depth -= 1,
        }
        from = next + 1;
    }
}

/// Splits `-T`'s duration from the end of a result.
fn duration(result: &[u8]) -> (&[u8], Option<u64>) {
    let split = || {
        let inner = result.strip_suffix(b">")?;
        let open = memchr::memrchr(b'<', &inner[inner.len().saturating_sub(32)..])? + inner.len().saturating_sub(32);
        let (seconds, after) = digits(&inner[open + 1..]);
        let ns = match after.strip_prefix(b".") {
            Some(point) => {
                let (ns, after) = fraction(point)?;
                after.is_empty().then_some(ns)?
            }
            None => return None,
        };
        Some((result[..open].trim_ascii_end(), seconds?.checked_mul(1_000_000_000)?.checked_add(ns)?))
    };
    split().map_or((result, None), |(rest, ns)| (rest, Some(ns)))
}

/// A descriptor as an argument or result: its number, and its name where `-y` gave one (still escaped).
pub(super) fn descriptor(text: &[u8]) -> Option<(u32, Option<&[u8]>)> {
    let (value, after) = digits(text);
    let value = u32::try_from(value?).ok()?;
    Some((value, angled(after)))
}

/// The name in `<…>` at the start, without `(deleted)` and what `-yy` says of devices.
pub(super) fn angled(text: &[u8]) -> Option<&[u8]> {
    if text.first() != Some(&b'<') {
        return None;
    }
    let inner = &text[1..path_end(text, 0)?];
    let inner = inner.strip_suffix(b" (deleted)").unwrap_or(inner);
    Some(memchr::memchr(b'<', inner).map_or(inner, |device| &inner[..device]))
}

/// The bytes of a quoted argument (`"/a\tb"`), or of an angled name, into `into`; `false` where there is no string.
pub(super) fn unquote(text: &[u8], into: &mut Vec<u8>) -> bool {
    into.clear();
    if text.first() != Some(&b'"') {
        return false;
    }
    let Some(end) = string_end(text, 0) else { return false };
    unescape(&text[1..end], into);
    true
}

/// Appends `text` with strace's escapes resolved.
pub(super) fn unescape(text: &[u8], into: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        into.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(&kind) = rest.first() else { return };
        let (byte, used) = match kind {
            b'n' => (b'\n', 1),
            b't' => (b'\t', 1),
            b'r' => (b'\r', 1),
            b'v' => (0x0b, 1),
            b'f' => (0x0c, 1),
            b'0'..=b'7' => {
                let count = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                (rest[..count].iter().fold(0u8, |value, byte| value.wrapping_mul(8).wrapping_add(byte - b'0')), count)
            }
            b'x' => {
                let count = rest[1..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
                let digit = |value: u8, byte: &u8| value << 4 | (*byte as char).to_digit(16).unwrap_or(0) as u8;
                (rest[1..=count].iter().fold(0, digit), count + 1)
            }
            other => (other, 1),
        };
        into.push(byte);
        rest = &rest[used..];
    }
    into.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead(line: &str) -> (Option<u32>, Stamp, &str) {
        let (leader, rest) = leader(line.as_bytes());
        (leader.thread, leader.stamp, std::str::from_utf8(rest).unwrap())
    }

    #[test]
    fn leaders_of_every_option() {
        assert_eq!(lead("close(3) = 0"), (None, Stamp::None, "close(3) = 0"));
        assert_eq!(lead("7567  close(3)"), (Some(7567), Stamp::None, "close(3)"));
        assert_eq!(lead("[pid   756] close(3)"), (Some(756), Stamp::None, "close(3)"));
        assert_eq!(lead("7567<cat> close(3)"), (Some(7567), Stamp::None, "close(3)"));
        let unix = Stamp::Unix(1_795_289_336_120_999_000);
        assert_eq!(lead("7567  1795289336.120999 close(3)"), (Some(7567), unix, "close(3)"));
        assert_eq!(lead("1795289336.120999 close(3)"), (None, unix, "close(3)"));
        assert_eq!(lead("1795289336 close(3)"), (None, Stamp::Unix(1_795_289_336_000_000_000), "close(3)"));
        let clock = Stamp::Clock(((23 * 60 + 59) * 60 + 58) * 1_000_000_000 + 5_000);
        assert_eq!(lead("[pid 7] 23:59:58.000005 close(3)"), (Some(7), clock, "close(3)"));
        assert_eq!(lead("7 23:59:58.000005 (+     0.000046) close(3)"), (Some(7), clock, "close(3)"));
        assert_eq!(lead("     0.000107 close(3)"), (None, Stamp::Relative(107_000), "close(3)"));
        assert_eq!(lead("7      0.000107 close(3)"), (Some(7), Stamp::Relative(107_000), "close(3)"));
        assert_eq!(lead("12:99:00 close(3)").1, Stamp::None);
    }

    #[test]
    fn calls() {
        let line = br#"pwrite64(3</p/a, (b>, "x\"), \\"..., 4096, 8192) = 4096 <0.000024>"#;
        let found = call(line).unwrap();
        assert_eq!(found.name, b"pwrite64");
        assert_eq!(descriptor(found.argument(0)), Some((3, Some(&b"/p/a, (b"[..]))));
        assert_eq!((found.unsigned(2), found.unsigned(3)), (Some(4096), Some(8192)));
        assert_eq!((found.returned(), found.duration_ns), (Some(4096), Some(24_000)));

        let failed = call(br#"openat(AT_FDCWD</tmp>, "x", O_RDONLY) = -1 ENOENT (No such file or directory)"#).unwrap();
        assert!(failed.failed() && failed.returned().is_none() && failed.duration_ns.is_none());
        assert_eq!(angled(&failed.argument(0)[8..]), Some(&b"/tmp"[..]));

        let socket = call(b"sendto(3<TCP:[1.2.3.4:5->6.7.8.9:80]>, \"a\", 1, 0, NULL, 0) = 1").unwrap();
        assert_eq!(socket.unsigned(2), Some(1));
        let device = call(b"read(0</dev/null<char 1:3>>, \"\", 10) = 0").unwrap();
        assert_eq!(descriptor(device.argument(0)), Some((0, Some(&b"/dev/null"[..]))));
        let deleted = call(b"read(5</a>(deleted), \"\", 10) = 0").unwrap();
        assert_eq!(descriptor(deleted.argument(0)), Some((5, Some(&b"/a"[..]))));
        let opened = call(b"open(\"a = b\", O_RDONLY) = 3</x = <y>").unwrap();
        assert_eq!(opened.returned(), Some(3));
        assert_eq!(call(b"mmap(NULL, 8, PROT_READ) = 0x7f00").unwrap().returned(), Some(0x7f00));
        for bad in ["", "(", "read", "read(", "read(3, \"", "read(3)", "read(3</a", "+++ exited with 0 +++", "a(]}) ="]
        {
            assert!(call(bad.as_bytes()).is_none_or(|call| call.returned().is_none()), "{bad}");
        }
    }

    #[test]
    fn escapes() {
        let mut text = Vec::new();
        assert!(unquote(br#""\ta\\\"\303\244\x41\74\0""#, &mut text));
        assert_eq!(text, b"\ta\\\"\xc3\xa4A<\0");
        assert!(!unquote(b"NULL", &mut text) && !unquote(br#""abc"#, &mut text));
        text.clear();
        unescape(br"a\", &mut text);
        unescape(br"\x", &mut text);
        assert_eq!(text, b"a\0");
    }
}
