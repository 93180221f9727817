//! Parses the text after an `@`: a path, optionally quoted, optionally with lines (`src/a.rs:10-20`).
//!
//! Invariant: a file with exactly this name takes precedence over other readings
//! (`a_name_is_taken_as_it_stands_first`).

/// The longest accepted path, the limit of file systems.
const MAX_PATH_BYTES: usize = 4_096;
/// The most characters of a path that an error repeats.
const SHOWN_CHARS: usize = 200;

/// One reading of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathReference {
    pub(crate) path: String,
    /// The first and the last line, from 1.
    pub(crate) lines: Option<(u64, u64)>,
}

/// Returns all readings of a reference, the most literal first.
pub(crate) fn parse_path_reference(text: &str) -> Result<Vec<PathReference>, String> {
    if text.is_empty() {
        return Err("the path is empty".to_owned());
    }
    if text.len() > MAX_PATH_BYTES {
        return Err(format!("the path has {} bytes, the limit is {MAX_PATH_BYTES}", text.len()));
    }
    if text.contains('\0') {
        return Err(format!("the path `{}` contains a zero byte", printable_path(text)));
    }
    let plain = |path: &str| PathReference { path: path.to_owned(), lines: None };
    let mut readings = vec![plain(text)];
    let quoted = text.strip_prefix('"').and_then(|rest| rest.rsplit_once('"'));
    if let Some((path, rest)) = quoted.filter(|(path, _)| !path.is_empty()) {
        match rest.strip_prefix(':').and_then(parse_lines) {
            Some(range) => readings.push(PathReference { path: path.to_owned(), lines: Some(range) }),
            None if rest.is_empty() => readings.push(plain(path)),
            None => {}
        }
    }
    if let Some((path, range)) = text.rsplit_once(':')
        && let Some(range) = parse_lines(range)
        && !path.is_empty()
    {
        readings.push(PathReference { path: path.to_owned(), lines: Some(range) });
    }
    Ok(readings)
}

/// Parses `10` or `10-20`.
fn parse_lines(text: &str) -> Option<(u64, u64)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| digits && *number > 0)
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    (first <= last).then_some((first, last))
}

/// Formats a path for a message: one line, shortened.
pub(crate) fn printable_path(path: &str) -> String {
    minke_config::trust::sanitize_bytes(path.as_bytes(), SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_readings(text: &str) -> Vec<(String, Option<(u64, u64)>)> {
        parse_path_reference(text).unwrap().into_iter().map(|meant| (meant.path, meant.lines)).collect()
    }

    #[test]
    fn a_name_is_taken_as_it_stands_first() {
        assert_eq!(all_readings("a.rs"), [("a.rs".to_owned(), None)]);
        assert_eq!(
            all_readings("a.rs:10-20"),
            [("a.rs:10-20".to_owned(), None), ("a.rs".to_owned(), Some((10, 20)))]
        );
        assert_eq!(all_readings("a.rs:7").last().unwrap().1, Some((7, 7)));
        assert_eq!(all_readings("\"a b.rs\"").last().unwrap(), &("a b.rs".to_owned(), None));
        assert_eq!(all_readings("\"a b.rs\":2-3")[1], ("a b.rs".to_owned(), Some((2, 3))));
        for plain in ["a:0", "a:3-2", "a:-3", "a:+3", "a:x", ":3", "a:3-", "a: 3", "a:99999999999999999999"] {
            assert_eq!(all_readings(plain).len(), 1, "{plain}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for bad in ["", "a\0b", &"x".repeat(MAX_PATH_BYTES + 1), &"y".repeat(1024 * 1024)] {
            let why = parse_path_reference(bad).unwrap_err();
            assert!(why.len() < 500, "{why}");
        }
    }
}
