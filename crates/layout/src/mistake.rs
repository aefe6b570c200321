//! Mistakes in TOML files, in the words of the file: which key has which value, and what to write instead.

use std::ops::Range;

/// Most characters of a value that a message shows.
const SHOWN: usize = 40;

/// What is wrong in `text`, and at which bytes of it, from the reader's `error`.
pub fn mistake(text: &str, error: &toml::de::Error) -> (Range<usize>, String) {
    let span = error.span().unwrap_or(0..0);
    let message = if text.trim().is_empty() {
        "the file is empty".to_owned()
    } else {
        in_words(error.message(), || format!("{} = {}", key_of(text, span.start), value_at(text, &span)))
    };
    (span, message)
}

/// The reader's `message` of a value that `entry` names, as in `width = 5`.
pub fn in_words(message: &str, entry: impl FnOnce() -> String) -> String {
    let message = message.trim().replace('\n', "; ");
    if message.starts_with("unknown field") {
        return format!("{message}; correct the key or remove it");
    }
    if let Some(key) = message.strip_prefix("missing field ") {
        return format!("{key} is missing: add it");
    }
    let is_value =
        ["invalid type: ", "invalid value: ", "invalid length "].iter().any(|kind| message.starts_with(kind));
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if is_value => format!("{}: write {}", entry(), wanted(expected)),
        _ => format!("this is no TOML: {message}"),
    }
}

/// What the reader expects, as a person writes it.
fn wanted(expected: &str) -> &str {
    match expected {
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        "f32" | "f64" => "a number",
        "a sequence" => "a list in brackets",
        "a tuple of size 2" => "two values in brackets",
        "any valid TOML value" => "a number of at most 64 bits",
        "a map" => "a table",
        structure if structure.starts_with("struct ") => "a table with keys",
        number if number.strip_prefix(['i', 'u']).is_some_and(|bits| bits == "size" || bits.parse::<u8>().is_ok()) => {
            "a whole number"
        }
        other => other,
    }
}

/// The key whose value starts at `start`; the header of a table where there is one.
fn key_of(text: &str, start: usize) -> &str {
    let before = text.get(..start).unwrap_or("");
    let key = before.rfind('=').map_or(before, |end| &before[..end]);
    let key = key.rsplit(['\n', ',', '{']).next().unwrap_or(key).trim();
    if key.is_empty() { "this" } else { key }
}

/// The value as it is written, cut to its first line and not too long.
fn value_at(text: &str, span: &Range<usize>) -> String {
    let whole = text.get(span.clone()).unwrap_or("").trim();
    let mut shown: String = whole.lines().next().unwrap_or("").chars().take(SHOWN).collect();
    if shown.len() < whole.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Form {
        words: Option<String>,
        count: Option<i64>,
        share: Option<f64>,
        many: Option<Vec<String>>,
        pair: Option<(String, String)>,
        inner: Option<Inner>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Inner {
        needed: i64,
    }

    fn said(text: &str) -> String {
        let error = toml::from_str::<Form>(text).err().expect("a mistake");
        mistake(text, &error).1
    }

    #[test]
    fn each_mistake_names_the_key_the_value_and_what_to_write() {
        let cases = [
            ("words = 5", "words = 5: write text in quotes"),
            ("words = 99999999999999999999", "words = 99999999999999999999: write text in quotes"),
            ("count = nan", "count = nan: write a whole number"),
            ("count = 'x'", "count = 'x': write a whole number"),
            ("share = 'NaN'", "share = 'NaN': write a number"),
            ("words = 'x'\nmany = 'y'", "many = 'y': write a list in brackets"),
            ("many = ['a',\n  'b',\n  7]", "many = 7: write text in quotes"),
            ("pair = ['a']", "pair = ['a']: write two values in brackets"),
            ("inner = 3", "inner = 3: write a table with keys"),
            ("inner = { needed = 'x' }", "needed = 'x': write a whole number"),
            ("inner = {}", "`needed` is missing: add it"),
            ("hello", "this is no TOML: key with no value, expected `=`"),
        ];
        for (text, wanted) in cases {
            assert_eq!(said(text), wanted, "{text}");
        }
        let empty = toml::from_str::<Inner>("\n").err().expect("a mistake");
        assert_eq!(mistake("\n", &empty).1, "the file is empty");
        assert!(said("other = 1").starts_with("unknown field `other`"));
        assert!(said("other = 1").ends_with("; correct the key or remove it"));
        let long = format!("count = '{}'", "é".repeat(100));
        assert_eq!(said(&long), format!("count = '{}…: write a whole number", "é".repeat(39)));
    }
}
