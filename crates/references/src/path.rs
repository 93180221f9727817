//! Paths: what stands behind an `@`: a path, perhaps in quotes, perhaps with lines (`src/a.rs:10-20`).
//!
//! Invariant: a file that is really called so is meant before anything that its name could also mean
//! (`a_name_is_taken_as_it_stands_first`).

/// The longest path that is looked at; file systems take no longer ones.
const PATH_BYTES: usize = 4_096;
/// The most of a path that a refusal repeats.
const SHOWN_CHARS: usize = 200;

/// One way to understand a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meant {
    pub(crate) path: String,
    /// The first and the last line, from 1.
    pub(crate) lines: Option<(u64, u64)>,
}

/// Everything that a reference can mean, the most literal first.
pub(crate) fn readings(text: &str) -> Result<Vec<Meant>, String> {
    if text.is_empty() {
        return Err("the path is empty".to_owned());
    }
    if text.len() > PATH_BYTES {
        return Err(format!("the path has {} bytes, more than the {PATH_BYTES} that are taken", text.len()));
    }
    if text.contains('\0') {
        return Err(format!("the path `{}` holds a zero byte", shown(text)));
    }
    let plain = |path: &str| Meant { path: path.to_owned(), lines: None };
    let mut readings = vec![plain(text)];
    let quoted = text.strip_prefix('"').and_then(|rest| rest.rsplit_once('"'));
    if let Some((path, rest)) = quoted.filter(|(path, _)| !path.is_empty()) {
        match rest.strip_prefix(':').and_then(lines) {
            Some(range) => readings.push(Meant { path: path.to_owned(), lines: Some(range) }),
            None if rest.is_empty() => readings.push(plain(path)),
            None => {}
        }
    }
    if let Some((path, range)) = text.rsplit_once(':')
        && let Some(range) = lines(range)
        && !path.is_empty()
    {
        readings.push(Meant { path: path.to_owned(), lines: Some(range) });
    }
    Ok(readings)
}

/// `10` or `10-20`.
fn lines(text: &str) -> Option<(u64, u64)> {
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

/// A path in an answer: one line, and not endless.
pub(crate) fn shown(path: &str) -> String {
    minke_trust::shown(path.as_bytes(), SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(String, Option<(u64, u64)>)> {
        readings(text).unwrap().into_iter().map(|meant| (meant.path, meant.lines)).collect()
    }

    #[test]
    fn a_name_is_taken_as_it_stands_first() {
        assert_eq!(all("a.rs"), [("a.rs".to_owned(), None)]);
        assert_eq!(all("a.rs:10-20"), [("a.rs:10-20".to_owned(), None), ("a.rs".to_owned(), Some((10, 20)))]);
        assert_eq!(all("a.rs:7").last().unwrap().1, Some((7, 7)));
        assert_eq!(all("\"a b.rs\"").last().unwrap(), &("a b.rs".to_owned(), None));
        assert_eq!(all("\"a b.rs\":2-3")[1], ("a b.rs".to_owned(), Some((2, 3))));
        for plain in ["a:0", "a:3-2", "a:-3", "a:+3", "a:x", ":3", "a:3-", "a: 3", "a:99999999999999999999"] {
            assert_eq!(all(plain).len(), 1, "{plain}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for bad in ["", "a\0b", &"x".repeat(PATH_BYTES + 1), &"y".repeat(1024 * 1024)] {
            let why = readings(bad).unwrap_err();
            assert!(why.len() < 500, "{why}");
        }
    }
}
