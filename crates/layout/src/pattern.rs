//! Patterns of paths, as layout files and rules name files.

/// A path relative to the pool's mount, or a pattern of such paths: `*` stands for any characters of one name, `?` for
/// one, `**` as a whole name for any number of directories (none too). A backslash takes the next character as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: String,
    names: Vec<Name>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    /// `**`
    AnyDepth,
    One(Vec<Token>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Token {
    Byte(u8),
    /// `?`
    AnyCharacter,
    /// `*`
    AnyRun,
}

/// A pattern that no file's path can match.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing.
    #[error("the path is empty: give it relative to the pool's mount, such as data/*.h5")]
    Empty,
    /// From the root.
    #[error("'{0}' starts at the root: give the path relative to the pool's mount")]
    Absolute(String),
    /// An empty name, `.` or `..` among its names.
    #[error("'{pattern}' has the name '{name}' in it: write the path without it")]
    Name {
        /// The whole pattern.
        pattern: String,
        /// The name that no file has.
        name: String,
    },
    /// A backslash at the end.
    #[error("'{0}' ends with a backslash, which takes the next character as it is: there is none")]
    Backslash(String),
    /// A NUL byte.
    #[error("'{0}' has a NUL byte in it")]
    Nul(String),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError`] for what no path relative to the mount can match.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.starts_with('/') {
            return Err(PatternError::Absolute(text.to_owned()));
        }
        if text.contains('\0') {
            return Err(PatternError::Nul(text.replace('\0', "\\0")));
        }
        let mut names = Vec::new();
        for name in text.split('/') {
            if matches!(name, "" | "." | "..") {
                return Err(PatternError::Name { pattern: text.to_owned(), name: name.to_owned() });
            }
            names.push(if name == "**" { Name::AnyDepth } else { Name::One(tokens(name, text)?) });
        }
        Ok(Self { text: text.to_owned(), names })
    }

    /// The pattern that matches exactly `path`.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub fn exact(path: &str) -> Result<Self, PatternError> {
        let mut text = String::with_capacity(path.len());
        for character in path.chars() {
            if matches!(character, '*' | '?' | '\\') {
                text.push('\\');
            }
            text.push(character);
        }
        Self::new(&text)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The one path that it matches; `None` for a pattern of many.
    pub fn exact_path(&self) -> Option<String> {
        let mut path = Vec::new();
        for (index, name) in self.names.iter().enumerate() {
            let Name::One(tokens) = name else { return None };
            if index > 0 {
                path.push(b'/');
            }
            for token in tokens {
                let Token::Byte(byte) = *token else { return None };
                path.push(byte);
            }
        }
        // Whole characters went in.
        String::from_utf8(path).ok()
    }

    /// The first `[` or `{` without a backslash before it. Other tools read a class or a choice of characters there; here it stands for
    /// itself.
    pub fn foreign_wildcard(&self) -> Option<char> {
        let mut characters = self.text.chars();
        while let Some(character) = characters.next() {
            match character {
                '[' | '{' => return Some(character),
                '\\' => drop(characters.next()),
                _ => {}
            }
        }
        None
    }

    /// Where what it matches is: the one file and `false`, or the directory that holds all of it (empty for the root) and
    /// `true`.
    pub fn place(&self) -> (String, bool) {
        if let Some(path) = self.exact_path() {
            return (path, false);
        }
        let above = self.text.match_indices('/').map(|(at, _)| &self.text[..at]);
        // A slash after a backslash is the character itself, but no name has one: such a prefix is no pattern.
        let exact = above.map_while(|above| Self::new(above).ok().and_then(|pattern| pattern.exact_path()));
        (exact.last().unwrap_or_default(), true)
    }

    /// Does it match `path`, relative to the mount? Any bytes; a `?` takes a whole UTF-8 character. No allocation;
    /// O(path x pattern) at worst.
    pub fn matches(&self, path: &[u8]) -> bool {
        let (mut names, mut rest) = (self.names.as_slice(), Some(path));
        // Where to go on, one directory deeper, when what follows the last `**` does not match.
        let mut retry: Option<(&[Name], &[u8])> = None;
        loop {
            match (names.split_first(), rest) {
                (None, None) => return true,
                (Some((Name::AnyDepth, after)), Some(path)) => {
                    retry = Some((after, path));
                    names = after;
                    // A file's own name is no directory.
                    if after.is_empty() {
                        return !path.is_empty();
                    }
                    continue;
                }
                (Some((Name::One(tokens), after)), Some(path)) => {
                    let (name, below) = first_name(path);
                    if matches_name(tokens, name) {
                        (names, rest) = (after, below);
                        continue;
                    }
                }
                (None, Some(_)) | (Some(_), None) => {}
            }
            let Some((after, path)) = retry else { return false };
            let (_, Some(below)) = first_name(path) else { return false };
            retry = Some((after, below));
            (names, rest) = (after, Some(below));
        }
    }
}

fn tokens(name: &str, pattern: &str) -> Result<Vec<Token>, PatternError> {
    let mut tokens = Vec::with_capacity(name.len());
    let mut bytes = name.bytes();
    while let Some(byte) = bytes.next() {
        tokens.push(match byte {
            b'*' if tokens.last() == Some(&Token::AnyRun) => continue,
            b'*' => Token::AnyRun,
            b'?' => Token::AnyCharacter,
            b'\\' => Token::Byte(bytes.next().ok_or_else(|| PatternError::Backslash(pattern.to_owned()))?),
            byte => Token::Byte(byte),
        });
    }
    Ok(tokens)
}

/// The first name of a path, and the path below it.
fn first_name(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
        None => (path, None),
    }
}

/// Matches one name, going back to the last `*` only: enough, since an earlier one could not take less.
fn matches_name(tokens: &[Token], name: &[u8]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match tokens.get(token) {
            None if at == name.len() => return true,
            Some(Token::AnyRun) => {
                retry = Some((token + 1, at));
                token += 1;
                continue;
            }
            Some(&Token::Byte(byte)) if name.get(at) == Some(&byte) => {
                (token, at) = (token + 1, at + 1);
                continue;
            }
            Some(Token::AnyCharacter) if at < name.len() => {
                at += 1;
                while name.get(at).is_some_and(|byte| byte & 0xC0 == 0x80) {
                    at += 1;
                }
                token += 1;
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = retry.filter(|&(_, from)| from < name.len()) else { return false };
        retry = Some((after, from + 1));
        (token, at) = (after, from + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(path.as_bytes())
    }

    #[test]
    fn stars_and_question_marks_stay_within_a_name() {
        assert!(matches("data/shared.dat", "data/shared.dat"));
        assert!(!matches("data/shared.dat", "data/shared.data"));
        assert!(matches("data/*.dat", "data/.dat") && matches("data/*.dat", "data/a.b.dat"));
        assert!(!matches("data/*.dat", "data/x/a.dat") && !matches("*.dat", "data/a.dat"));
        assert!(matches("a?c", "abc") && matches("a?c", "aéc") && !matches("a?c", "ac") && !matches("a?c", "a/c"));
        assert!(matches("*a*b*", "xxaxxbxx") && !matches("*a*b*", "xxbxxaxx"));
        assert!(matches("rank-??.h5", "rank-07.h5") && !matches("rank-??.h5", "rank-7.h5"));
        assert!(matches("a**b", "axxb") && !matches("a**b", "a/b"));
    }

    #[test]
    fn two_stars_are_any_depth() {
        for path in ["a", "x/a", "x/y/z/a"] {
            assert!(matches("**/a", path), "{path}");
        }
        assert!(!matches("**/a", "x/ab") && !matches("**/a", "a/x"));
        assert!(matches("x/**", "x/a") && matches("x/**", "x/a/b") && !matches("x/**", "x") && !matches("x/**", "y/a"));
        assert!(
            matches("x/**/a/**/b", "x/a/a/q/b") && matches("x/**/a/**/b", "x/a/b") && !matches("x/**/a/**/b", "x/b")
        );
        assert!(matches("**", "a") && matches("**", "a/b"));
    }

    #[test]
    fn backslashes_take_a_character_as_it_is() {
        assert!(matches(r"a\*b", "a*b") && !matches(r"a\*b", "axb"));
        assert_eq!(Pattern::new(r"d/a\*b").unwrap().exact_path().as_deref(), Some("d/a*b"));
        assert_eq!(Pattern::new("d/a*b").unwrap().exact_path(), None);
        assert_eq!(Pattern::new("**").unwrap().exact_path(), None);
    }

    #[test]
    fn classes_and_choices_of_other_tools_stand_for_themselves() {
        let foreign = |text: &str| Pattern::new(text).unwrap().foreign_wildcard();
        assert_eq!(["*.[ch]", "{a,b}", r"\\[a]"].map(foreign), [Some('['), Some('{'), Some('[')]);
        assert_eq!(["*.h5", r"a\[1\].raw", r"\{a,b}", "a]b}"].map(foreign), [None; 4]);
        assert!(matches("*.[ch]", "a.[ch]") && !matches("*.[ch]", "a.c") && matches(r"a\[1\]", "a[1]"));
    }

    #[test]
    fn a_pattern_has_a_place() {
        let place = |text: &str| Pattern::new(text).unwrap().place();
        assert_eq!(place("d/a.dat"), ("d/a.dat".to_owned(), false));
        assert_eq!(place(r"d/a\*b"), ("d/a*b".to_owned(), false));
        assert_eq!(place("d/e/*.dat"), ("d/e".to_owned(), true));
        assert_eq!(place("d/*/e/a"), ("d".to_owned(), true));
        assert_eq!(place(r"d\?/**"), ("d?".to_owned(), true));
        assert_eq!(place("**"), (String::new(), true));
    }

    #[test]
    fn what_no_file_has_is_refused() {
        assert_eq!(Pattern::new(""), Err(PatternError::Empty));
        assert_eq!(
            Pattern::new("/a").unwrap_err().to_string(),
            "'/a' starts at the root: give the path relative to the pool's mount"
        );
        for text in ["a//b", "a/", "./a", "a/../b", "a\\", "a\0b"] {
            assert!(Pattern::new(text).is_err(), "{text}");
        }
    }

    /// The obvious exponential matcher.
    fn reference(pattern: &[&str], path: &[&str]) -> bool {
        fn name(pattern: &[u8], name_: &[u8]) -> bool {
            match pattern.split_first() {
                None => name_.is_empty(),
                Some((b'*', rest)) => (0..=name_.len()).any(|taken| name(rest, &name_[taken..])),
                Some((b'?', rest)) => !name_.is_empty() && name(rest, &name_[1..]),
                Some((byte, rest)) => name_.first() == Some(byte) && name(rest, &name_[1..]),
            }
        }
        match pattern.split_first() {
            None => path.is_empty(),
            Some((&"**", [])) => !path.is_empty(),
            Some((&"**", rest)) => (0..path.len()).any(|taken| reference(rest, &path[taken..])),
            Some((first, rest)) => {
                path.first().is_some_and(|p| name(first.as_bytes(), p.as_bytes())) && reference(rest, &path[1..])
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn equals_the_obvious_matcher(pattern in prop::collection::vec("[ab*?]{1,5}|\\*\\*", 1..5), path in prop::collection::vec("[ab]{1,5}", 1..6)) {
            let (patterns, paths): (Vec<&str>, Vec<&str>) =
                (pattern.iter().map(String::as_str).collect(), path.iter().map(String::as_str).collect());
            prop_assert_eq!(matches(&pattern.join("/"), &path.join("/")), reference(&patterns, &paths));
        }

        #[test]
        fn an_exact_pattern_matches_its_path_only(path in "[a*?\\\\é]{1,4}(/[a*?\\\\é]{1,4}){0,2}", other in "[a*?\\\\é]{1,4}") {
            let pattern = Pattern::exact(&path).unwrap();
            prop_assert!(pattern.matches(path.as_bytes()));
            prop_assert_eq!(pattern.matches(other.as_bytes()), path == other);
            prop_assert_eq!(pattern.exact_path(), Some(path));
        }
    }
}
