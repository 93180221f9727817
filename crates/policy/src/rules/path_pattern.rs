//! Path patterns: decides whether a possible value of a word and the glob of a rule have a path in common.
//!
//! This module converts the glob of a rule into alternatives and the shape of a word into an absolute
//! pattern, and intersects both. `crate::shell` has the shapes, `file_words` selects the words.
//! Invariant: if a common path exists, the answer is never no (`what_both_could_name_is_seen`).

use crate::shell::ShapeAtom;

/// The maximum number of alternatives of one glob; a glob with more matches anything.
const MAX_ALTERNATIVES: usize = 64;

/// One element of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatternToken {
    Char(char),
    /// One character except `/`.
    AnyChar,
    /// Any number of digits and of the separators in a date.
    Digits,
    /// Any number of letters of flags.
    FlagLetters,
    /// Any number of characters except `/`.
    Name,
    /// Any number of characters.
    AnyText,
    /// Any number of names that are not hidden, with the `/` between them.
    VisibleNames,
    /// The next character is not a dot.
    NotHidden,
}

/// The absolute paths that a glob of a rule matches, one pattern per alternative.
#[derive(Debug, Clone, Default)]
pub(super) struct GlobPaths {
    pub(super) paths: Vec<Vec<PatternToken>>,
}

impl GlobPaths {
    /// Parses a glob, relative to the root or to each of these directories.
    pub(super) fn from_glob(glob: &str, bases: &[&str]) -> GlobPaths {
        let mut paths = Vec::new();
        for glob in expand_braces(glob) {
            let tokens = tokenize_glob(&glob);
            if glob.starts_with('/') {
                paths.extend(tokens);
            } else if glob.starts_with("**") {
                paths.extend(
                    tokens.into_iter().map(|tokens| {
                        [vec![PatternToken::AnyText, PatternToken::Char('/')], tokens].concat()
                    }),
                );
            } else {
                for base in bases {
                    let base = base.trim_end_matches('/').chars().map(PatternToken::Char);
                    let base: Vec<PatternToken> = base.chain([PatternToken::Char('/')]).collect();
                    paths.extend(tokens.iter().map(|tokens| [base.as_slice(), tokens].concat()));
                }
            }
        }
        if paths.len() > MAX_ALTERNATIVES {
            paths = vec![vec![PatternToken::AnyText]];
        }
        GlobPaths { paths }
    }
}

/// Expands the braces of a glob. Too many alternatives, or nested ones that cannot be parsed, match anything.
fn expand_braces(glob: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![glob.to_owned()];
    while let Some(glob) = open.pop() {
        let Some((start, end, commas)) = find_brace(&glob) else {
            done.push(glob);
            continue;
        };
        let (before, after) =
            (glob.get(..start).unwrap_or_default(), glob.get(end + 1..).unwrap_or_default());
        let mut from = start + 1;
        for to in commas.into_iter().chain([end]) {
            open.push(format!("{before}{}{after}", glob.get(from..to).unwrap_or_default()));
            from = to + 1;
        }
        if open.len() + done.len() > MAX_ALTERNATIVES {
            return vec!["/**".to_owned()];
        }
    }
    done
}

/// Finds the first pair of braces and the commas between its alternatives.
fn find_brace(glob: &str) -> Option<(usize, usize, Vec<usize>)> {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut commas = Vec::new();
    let mut escaped = false;
    for (at, letter) in glob.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => {
                depth += 1;
                if depth == 1 {
                    start = at;
                }
            }
            '}' if depth == 1 => return Some((start, at, commas)),
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 1 => commas.push(at),
            _ => {}
        }
    }
    None
}

/// Tokenizes a glob without braces. `**/` matches any number of directories, including none.
fn tokenize_glob(glob: &str) -> Vec<Vec<PatternToken>> {
    let mut all: Vec<Vec<PatternToken>> = vec![Vec::new()];
    let mut rest = glob;
    let mut fresh = true;
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        if fresh && let Some(below) = rest.strip_prefix("**/") {
            let without = all.clone();
            all.iter_mut().for_each(|tokens| tokens.extend([PatternToken::AnyText, PatternToken::Char('/')]));
            all.extend(without);
            rest = below;
            if all.len() > MAX_ALTERNATIVES {
                return vec![vec![PatternToken::AnyText]];
            }
            continue;
        }
        let (token, after) = match letter {
            '*' if after.starts_with('*') => (PatternToken::AnyText, after.trim_start_matches('*')),
            '*' => (PatternToken::Name, after),
            '?' => (PatternToken::AnyChar, after),
            '[' => match after_char_set(after) {
                Some(after) => (PatternToken::AnyChar, after),
                None => (PatternToken::Char('['), after),
            },
            '\\' => match after.chars().next() {
                Some(letter) => {
                    (PatternToken::Char(letter), after.get(letter.len_utf8()..).unwrap_or_default())
                }
                None => (PatternToken::Char('\\'), after),
            },
            letter => (PatternToken::Char(letter), after),
        };
        all.iter_mut().for_each(|tokens| tokens.push(token));
        fresh = letter == '/';
        rest = after;
    }
    all
}

/// Returns the text after a character set.
fn after_char_set(rest: &str) -> Option<&str> {
    let inner = rest.trim_start_matches(['!', '^']);
    let first = inner.chars().next()?;
    let (_, after) = inner.get(first.len_utf8()..)?.split_once(']')?;
    Some(after)
}

/// Returns a shape as an absolute pattern: relative shapes start in the directory, `.` and `..` are resolved.
pub(super) fn absolute_pattern(cwd: &str, atoms: &[ShapeAtom]) -> Vec<PatternToken> {
    let mut parts: Vec<Vec<ShapeAtom>> = Vec::new();
    let rooted = matches!(
        atoms.first(),
        Some(ShapeAtom::Char('/') | ShapeAtom::Cwd | ShapeAtom::AnyText | ShapeAtom::AnyWords)
    );
    if !rooted {
        parts.extend(path_names(cwd));
    }
    let mut part: Vec<ShapeAtom> = Vec::new();
    for atom in atoms.iter().chain([&ShapeAtom::Char('/')]) {
        match atom {
            ShapeAtom::Char('/') => push_path_part(&mut parts, std::mem::take(&mut part)),
            ShapeAtom::Cwd if part.is_empty() && parts.is_empty() => parts.extend(path_names(cwd)),
            ShapeAtom::Cwd => part.push(ShapeAtom::AnyText),
            atom => part.push(atom.clone()),
        }
    }
    let mut tokens = Vec::new();
    for part in parts {
        // Any text contains its own slashes.
        let begins =
            matches!(part.first(), Some(ShapeAtom::AnyText | ShapeAtom::AnyWords)) && tokens.is_empty();
        if !begins {
            tokens.push(PatternToken::Char('/'));
        }
        if matches!(part.first(), Some(ShapeAtom::AnyChar | ShapeAtom::Star | ShapeAtom::Deep)) {
            tokens.push(PatternToken::NotHidden);
        }
        tokens.extend(part.iter().map(atom_token));
    }
    tokens
}

/// Returns a shape as it is written, without resolving anything.
pub(super) fn literal_pattern(atoms: &[ShapeAtom]) -> Vec<PatternToken> {
    atoms.iter().map(atom_token).collect()
}

fn path_names(path: &str) -> impl Iterator<Item = Vec<ShapeAtom>> {
    path.split('/').filter(|name| !name.is_empty()).map(|name| name.chars().map(ShapeAtom::Char).collect())
}

/// Appends one component of a path.
fn push_path_part(parts: &mut Vec<Vec<ShapeAtom>>, part: Vec<ShapeAtom>) {
    match part.as_slice() {
        [] | [ShapeAtom::Char('.')] => {}
        [ShapeAtom::Char('.'), ShapeAtom::Char('.')] => {
            let wide = parts
                .iter()
                .flatten()
                .any(|a| matches!(a, ShapeAtom::AnyText | ShapeAtom::AnyWords | ShapeAtom::Deep));
            if wide {
                *parts = vec![vec![ShapeAtom::AnyText]];
            } else {
                parts.pop();
            }
        }
        // A component that begins with a dot may be `..` or a hidden name: any text covers both.
        [ShapeAtom::Char('.'), rest @ ..]
            if rest.iter().all(|atom| !matches!(atom, ShapeAtom::Char(c) if *c != '.')) =>
        {
            *parts = vec![vec![ShapeAtom::AnyText]];
        }
        _ => parts.push(part),
    }
}

fn atom_token(atom: &ShapeAtom) -> PatternToken {
    match atom {
        ShapeAtom::Char(letter) => PatternToken::Char(*letter),
        ShapeAtom::AnyChar => PatternToken::AnyChar,
        ShapeAtom::Star | ShapeAtom::Name => PatternToken::Name,
        ShapeAtom::Deep => PatternToken::VisibleNames,
        ShapeAtom::Digits => PatternToken::Digits,
        ShapeAtom::AnyText
        | ShapeAtom::AnyWords
        | ShapeAtom::Cwd
        | ShapeAtom::OneOfSeveral
        | ShapeAtom::Variable(_) => PatternToken::AnyText,
    }
}

/// The characters that a token matches at one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Char(char),
    Digit,
    Flag,
    NoSlash,
    AnyChar,
}

impl CharClass {
    fn of_token(token: PatternToken) -> Option<CharClass> {
        Some(match token {
            PatternToken::Char(letter) => CharClass::Char(letter),
            PatternToken::AnyChar | PatternToken::Name => CharClass::NoSlash,
            PatternToken::Digits => CharClass::Digit,
            PatternToken::FlagLetters => CharClass::Flag,
            PatternToken::AnyText | PatternToken::VisibleNames => CharClass::AnyChar,
            PatternToken::NotHidden => return None,
        })
    }

    fn accepts(self, letter: char) -> bool {
        match self {
            CharClass::Char(own) => own == letter,
            CharClass::Digit => letter.is_ascii_digit() || "-_:TZW".contains(letter),
            CharClass::Flag => letter != '/' && letter != '.',
            CharClass::NoSlash => letter != '/',
            CharClass::AnyChar => true,
        }
    }

    /// Returns the common characters of two classes: whether they include a slash, and whether others.
    fn intersect(self, other: CharClass, shown: bool) -> Option<CommonChars> {
        let exact = match (self, other) {
            (CharClass::Char(letter), other) | (other, CharClass::Char(letter)) => {
                if !other.accepts(letter) {
                    return None;
                }
                Some(letter)
            }
            _ => None,
        };
        if shown && exact == Some('.') {
            return None;
        }
        let has_slash =
            exact.map_or(self == CharClass::AnyChar && other == CharClass::AnyChar, |letter| letter == '/');
        Some(CommonChars { has_slash, has_other: exact != Some('/') })
    }
}

/// The characters that two classes have in common.
struct CommonChars {
    has_slash: bool,
    has_other: bool,
}

fn is_repeating(token: PatternToken) -> bool {
    matches!(
        token,
        PatternToken::Digits
            | PatternToken::FlagLetters
            | PatternToken::Name
            | PatternToken::AnyText
            | PatternToken::VisibleNames
    )
}

/// Returns whether a path matches both patterns, by a search over pairs of positions.
pub(super) fn patterns_intersect(word: &[PatternToken], rule: &[PatternToken]) -> bool {
    if !ends_match(word, rule) {
        return false;
    }
    let width = rule.len() + 1;
    let mut seen = vec![false; (word.len() + 1) * width * 2];
    let mut open = vec![(0_usize, 0_usize, false)];
    while let Some((at, by, shown)) = open.pop() {
        let place = (at * width + by) * 2 + usize::from(shown);
        if seen.get(place).copied().unwrap_or(true) {
            continue;
        }
        if let Some(slot) = seen.get_mut(place) {
            *slot = true;
        }
        if at == word.len() && by == rule.len() {
            return true;
        }
        let (own, other) = (word.get(at).copied(), rule.get(by).copied());
        if own == Some(PatternToken::NotHidden) {
            open.push((at + 1, by, true));
            continue;
        }
        if own.is_some_and(is_repeating) {
            open.push((at + 1, by, shown));
        }
        if other.is_some_and(is_repeating) {
            open.push((at, by + 1, shown));
        }
        let (Some(own), Some(other)) = (own, other) else { continue };
        let (Some(first), Some(second)) = (CharClass::of_token(own), CharClass::of_token(other)) else {
            continue;
        };
        let Some(met) = first.intersect(second, shown) else { continue };
        let next = (at + usize::from(!is_repeating(own)), by + usize::from(!is_repeating(other)));
        if met.has_other {
            open.push((next.0, next.1, false));
        }
        if met.has_slash {
            open.push((next.0, next.1, own == PatternToken::VisibleNames));
        }
    }
    false
}

/// Quickly compares the literal characters at the ends of both patterns.
fn ends_match(word: &[PatternToken], rule: &[PatternToken]) -> bool {
    for pair in word.iter().rev().zip(rule.iter().rev()) {
        match pair {
            (PatternToken::Char(a), PatternToken::Char(b)) if a == b => {}
            (PatternToken::Char(_), PatternToken::Char(_)) => return false,
            _ => return true,
        }
    }
    true
}
