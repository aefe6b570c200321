//! One line of the log as a [`LogEvent`]: a scanner for the form that dftracer writes, `serde_json` for every other.

use serde_json::Value;
use std::borrow::Cow;

/// A name that was written as a hash: a number, or up to 16 hexadecimal digits.
pub(super) type Hash = u64;

/// Which of the categories that matter a line is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Category {
    Posix,
    Stdio,
    /// dftracer's own: names of hashes, begin and end.
    Own,
    /// The program's own functions, and anything else.
    #[default]
    Other,
}

/// What a line says, as far as it matters here. Numbers may stand as strings, as early 1.x wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LogEvent<'a> {
    pub category: Category,
    pub name: Cow<'a, [u8]>,
    pub pid: Option<i64>,
    pub tid: Option<i64>,
    /// In the log's unit of time.
    pub begin: Option<i64>,
    pub duration: Option<i64>,
    /// The line tells a name and is no call.
    pub is_metadata: bool,
    /// The line sums up calls that were made in an interval.
    pub is_counter: bool,
    /// Whether it has `args` with anything in them but the host.
    pub has_args: bool,
    pub args: Args<'a>,
}

/// The arguments of a call, by the names that dftracer gives them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Args<'a> {
    pub ret: Option<i64>,
    /// How many bytes `fgets` found.
    pub ret_len: Option<i64>,
    pub count: Option<i64>,
    pub size: Option<i64>,
    pub offset: Option<i64>,
    pub whence: Option<i64>,
    pub length: Option<i64>,
    pub flags: Option<i64>,
    pub fd: Option<i64>,
    pub host: Option<Hash>,
    pub file: Option<Hash>,
    pub new_path: Option<Hash>,
    pub cwd: Option<Hash>,
    pub command: Option<Hash>,
    pub file_name: Option<Cow<'a, [u8]>>,
    /// Mode of `fopen`.
    pub mode: Option<Cow<'a, [u8]>>,
    /// Of metadata: what is named, and its value as a hash and as text.
    pub name: Option<Cow<'a, [u8]>>,
    pub value: Option<Hash>,
    pub text: Option<Cow<'a, [u8]>>,
}

/// A string or a whole number.
enum Scalar<'a> {
    Text(Cow<'a, [u8]>),
    Number(i64),
}

impl<'a> Scalar<'a> {
    fn number(&self) -> Option<i64> {
        match self {
            Scalar::Number(number) => Some(*number),
            Scalar::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        }
    }

    /// O(length).
    fn hash(&self) -> Hash {
        match self {
            Scalar::Number(number) => *number as Hash,
            Scalar::Text(text) => hash_of(text),
        }
    }

    fn text(self) -> Option<Cow<'a, [u8]>> {
        match self {
            Scalar::Text(text) => Some(text),
            Scalar::Number(_) => None,
        }
    }
}

/// Hexadecimal digits as their number, any other text as a hash of ours (FNV-1a).
pub(super) fn hash_of(text: &[u8]) -> Hash {
    let digit = |byte: u8| (byte as char).to_digit(16).map(u64::from);
    if (1..=16).contains(&text.len())
        && let Some(value) = text.iter().try_fold(0u64, |value, byte| Some(value << 4 | digit(*byte)?))
    {
        return value;
    }
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl<'a> LogEvent<'a> {
    /// The event of this line; `None` where it is none. O(length).
    pub fn of(line: &'a [u8]) -> Option<Self> {
        scan(line).or_else(|| parse(line))
    }

    fn set(&mut self, key: &[u8], value: Scalar<'a>) {
        match key {
            b"cat" => {
                self.category = match value.text().as_deref() {
                    Some(b"POSIX") => Category::Posix,
                    Some(b"STDIO") => Category::Stdio,
                    Some(b"dftracer") => Category::Own,
                    _ => Category::Other,
                }
            }
            b"name" => self.name = value.text().unwrap_or_default(),
            b"pid" => self.pid = value.number(),
            b"tid" => self.tid = value.number(),
            b"ts" => self.begin = value.number(),
            b"dur" => self.duration = value.number(),
            b"ph" => {
                (self.is_metadata, self.is_counter) = match &value {
                    Scalar::Number(phase) => (*phase == 4, *phase == 2 || *phase == 3),
                    Scalar::Text(phase) => (phase.as_ref() == b"M", phase.as_ref() == b"C"),
                }
            }
            _ => {}
        }
    }
}

impl<'a> Args<'a> {
    fn set(&mut self, key: &[u8], value: Scalar<'a>) {
        match key {
            b"ret" => self.ret = value.number(),
            b"ret_len" => self.ret_len = value.number(),
            b"count" => self.count = value.number(),
            b"size" => self.size = value.number(),
            b"offset" => self.offset = value.number(),
            b"whence" => self.whence = value.number(),
            b"length" => self.length = value.number(),
            b"flags" => self.flags = value.number(),
            b"fd" => self.fd = value.number(),
            b"fhash" => self.file = Some(value.hash()),
            b"hhash" | b"hostname" => self.host = Some(value.hash()),
            b"newpath_hash" => self.new_path = Some(value.hash()),
            b"cwd" => self.cwd = Some(value.hash()),
            b"cmd_hash" => self.command = Some(value.hash()),
            b"fname" => self.file_name = value.text(),
            b"mode" => self.mode = value.text(),
            b"name" => self.name = value.text(),
            b"value" => {
                self.value = Some(value.hash());
                self.text = value.text();
            }
            _ => {}
        }
    }
}

/// Lines as dftracer writes them: one object, in it strings without escapes, whole numbers, and one object `args` of the
/// same. `None` for anything else, whether it is JSON or not.
fn scan(line: &[u8]) -> Option<LogEvent<'_>> {
    let mut at = Cursor { line, at: 0 };
    let mut event = LogEvent::default();
    at.blanks();
    at.expect(b'{')?;
    loop {
        let key = at.string()?;
        at.expect(b':')?;
        if key == b"args" {
            event.args = Args::default();
            event.has_args = false;
            at.expect(b'{')?;
            if at.peek()? == b'}' {
                at.at += 1;
            } else {
                loop {
                    let key = at.string()?;
                    at.expect(b':')?;
                    event.has_args |= key != b"hhash" && key != b"hostname";
                    event.args.set(key, at.scalar()?);
                    if at.either()? {
                        break;
                    }
                }
            }
        } else {
            event.set(key, at.scalar()?);
        }
        if at.either()? {
            break;
        }
    }
    // An array of events has a comma behind each.
    if at.peek() == Some(b',') {
        at.at += 1;
    }
    at.blanks();
    (at.at == line.len()).then_some(event)
}

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// A comma (`false`) or the end of the object (`true`).
    #[inline]
    fn either(&mut self) -> Option<bool> {
        let end = match self.peek()? {
            b',' => false,
            b'}' => true,
            _ => return None,
        };
        self.at += 1;
        Some(end)
    }

    /// A string without escapes. Bytes that are no UTF-8 are taken as they are: names of files may be anything.
    #[inline]
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let begin = self.at;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' | 0..0x20 => return None,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(&self.line[begin..self.at - 1])
    }

    #[inline]
    fn scalar(&mut self) -> Option<Scalar<'a>> {
        if self.peek()? == b'"' {
            return self.string().map(|text| Scalar::Text(Cow::Borrowed(text)));
        }
        let negative = self.peek()? == b'-';
        self.at += usize::from(negative);
        let begin = self.at;
        let mut value = 0i64;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
            self.at += 1;
        }
        let digits = self.at - begin;
        let plain = digits > 0 && !(digits > 1 && self.line[begin] == b'0');
        (plain && matches!(self.peek(), Some(b',' | b'}'))).then_some(Scalar::Number(if negative {
            -value
        } else {
            value
        }))
    }
}

/// Any JSON. What is neither a string nor a whole number that fits is as if it were not there.
fn parse(line: &[u8]) -> Option<LogEvent<'static>> {
    let line = line.trim_ascii();
    let Value::Object(fields) = serde_json::from_slice(line.strip_suffix(b",").unwrap_or(line)).ok()? else {
        return None;
    };
    fn scalar(value: Value) -> Option<Scalar<'static>> {
        match value {
            Value::String(text) => Some(Scalar::Text(Cow::Owned(text.into_bytes()))),
            Value::Number(number) => number.as_i64().map(Scalar::Number),
            _ => None,
        }
    }
    let mut event = LogEvent::default();
    for (key, value) in fields {
        match value {
            Value::Object(args) if key == "args" => {
                event.has_args = args.keys().any(|key| key != "hhash" && key != "hostname");
                for (key, value) in args {
                    if let Some(value) = scalar(value) {
                        event.args.set(key.as_bytes(), value);
                    }
                }
            }
            value => {
                if let Some(value) = scalar(value) {
                    event.set(key.as_bytes(), value);
                }
            }
        }
    }
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_every_version() {
        let new = br#"{"id":87,"name":"pwrite64","cat":"POSIX","type":3,"pid":5,"tid":6,"ts":1795318380661459,"dur":7,"ph":1,"args":{"hhash":"6882804a826580cd","ret":4096,"offset":8192,"count":4096,"fhash":"d6416c3c7b3cb78e"}}"#;
        let event = scan(new).unwrap();
        assert_eq!((event.category, event.name.as_ref(), event.pid), (Category::Posix, &b"pwrite64"[..], Some(5)));
        assert_eq!((event.args.offset, event.args.file), (Some(8192), Some(0xd641_6c3c_7b3c_b78e)));
        let old = br#" {"id":"4","name":"open","cat":"POSIX","pid":"7","tid":"8","ts":"16","dur":"24","ph":"X","args":{"hostname":"c","ret":18,"fname":"/p/f","flags":66}}"#;
        let event = scan(old).unwrap();
        assert_eq!((event.begin, event.duration, event.args.ret), (Some(16), Some(24), Some(18)));
        assert_eq!(event.args.file_name.as_deref(), Some(&b"/p/f"[..]));
        let told = br#"{"name":"FH","cat":"dftracer","type":1,"pid":1,"tid":1,"ph":4,"args":{"hhash":"1f","name":"/a","value":"5c"}}"#;
        let event = scan(told).unwrap();
        assert!(event.is_metadata && event.args.value == Some(0x5c) && event.args.name.as_deref() == Some(b"/a"));
        // Its last line has objects in objects.
        assert!(scan(br#"{"name":"end","args":{"app":{},"used":{"LIBC_IO":1}}}"#).is_none());
        assert_eq!(LogEvent::of(br#"{"name":"end","args":{"app":{}}}"#).unwrap().name.as_ref(), b"end");
        for bad in ["", "[", "]", "{}x", "{\"a\":01}", "{\"a\":1", "{\"a\"1}", "{\"step\":1,}", "{\"args\":{\"x\":}}"] {
            assert_eq!(scan(bad.as_bytes()), None, "{bad}");
            assert!(LogEvent::of(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    fn key() -> impl Strategy<Value = String> {
        static KNOWN: [&str; 26] = [
            "name",
            "cat",
            "pid",
            "tid",
            "ts",
            "dur",
            "ph",
            "ret",
            "ret_len",
            "count",
            "size",
            "offset",
            "whence",
            "length",
            "flags",
            "fd",
            "fhash",
            "hhash",
            "hostname",
            "newpath_hash",
            "cwd",
            "cmd_hash",
            "fname",
            "mode",
            "value",
            "id",
        ];
        prop_oneof![8 => prop::sample::select(&KNOWN[..]).prop_map(str::to_owned), 1 => "[a-z]{1,6}"]
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::from),
            (0i64..100).prop_map(Value::from),
            prop::sample::select(
                &["POSIX", "STDIO", "dftracer", "X", "M", "C", "12", "-7", "00ff", "a b", "é", "\\\"\n"][..]
            )
            .prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            (-1e9..1e9).prop_map(|number: f64| Value::from(number)),
            Just(Value::Null),
            Just(serde_json::json!([1, 2])),
            Just(serde_json::json!({"x": 1})),
        ]
    }

    fn object(entries: Vec<(String, Value)>) -> serde_json::Map<String, Value> {
        entries.into_iter().collect()
    }

    proptest! {
        /// What the scanner takes, it takes as `serde_json` does; and it takes all that is plain.
        #[test]
        fn the_scanner_agrees_with_serde_json(
            fields in prop::collection::vec((key(), value()), 0..10),
            args in prop::option::of(prop::collection::vec((key(), value()), 0..8)),
            cut in prop::option::of(0usize..200),
            flip in prop::option::of((0usize..200, any::<u8>())),
        ) {
            let mut fields = object(fields);
            if let Some(args) = args {
                fields.insert("args".to_owned(), Value::Object(object(args)));
            }
            let plain = |value: &Value| match value {
                Value::String(text) => !text.contains(['\\', '"', '\n']),
                Value::Number(number) => number.as_i64().is_some_and(|number| number != i64::MIN),
                _ => false,
            };
            let whole = !fields.is_empty() && fields.iter().all(|(key, value)| match value {
                Value::Object(args) if key == "args" => args.values().all(plain),
                value => key != "args" && plain(value),
            });
            let mut line = serde_json::to_vec(&fields).unwrap();
            prop_assert!(!whole || scan(&line).is_some());
            if let Some(cut) = cut {
                line.truncate(cut.max(1));
            }
            if let Some((at, byte)) = flip {
                let at = at % line.len();
                line[at] = byte;
            }
            // A line that is no UTF-8 is no JSON, but may be the name of a file; twice the same key is left to either.
            let repeated = flip.is_some();
            if let Some(event) = scan(&line)
                && std::str::from_utf8(&line).is_ok()
            {
                let other = parse(&line);
                prop_assert!(other.is_some());
                prop_assert!(repeated || other == Some(event));
            }
        }
    }
}
