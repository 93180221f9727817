//! Patterns of paths: whether what a word can become and what a rule names have one path in common.
//!
//! Here: the glob of a rule as a list of alternatives, the shape of a word as an absolute path, and the walk over both at
//! once. Elsewhere: shapes (`crate::shell`), which words may be paths (`mention`).
//! Invariant: where a common path exists the answer is never no (`what_both_could_name_is_seen`).

use crate::shell::Atom;

/// The most alternatives of one glob; with more it is taken to name anything.
const ALTERNATIVES: usize = 64;

/// One part of a path, of a rule or of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Char(char),
    /// One character that is no slash.
    One,
    /// Digits and what stands between those of a date, any number of them.
    Digits,
    /// Letters of flags, any number of them.
    Flag,
    /// Any number of characters that are no slash.
    Name,
    /// Any number of any characters.
    Any,
    /// Any number of names that are not hidden, and the slashes between them.
    Deep,
    /// What follows does not begin with a dot.
    Shown,
}

/// The paths that a glob of a rule names, each alternative from the root; and what lies below them.
#[derive(Debug, Clone, Default)]
pub(super) struct Named {
    pub(super) paths: Vec<Vec<Token>>,
}

impl Named {
    /// Reads a glob, which begins at the root or at each of these directories.
    pub(super) fn read(glob: &str, bases: &[&str]) -> Named {
        let mut paths = Vec::new();
        for glob in braces(glob) {
            let tokens = tokens(&glob);
            if glob.starts_with('/') {
                paths.extend(tokens);
            } else if glob.starts_with("**") {
                paths.extend(
                    tokens.into_iter().map(|tokens| [vec![Token::Any, Token::Char('/')], tokens].concat()),
                );
            } else {
                for base in bases {
                    let base = base.trim_end_matches('/').chars().map(Token::Char);
                    let base: Vec<Token> = base.chain([Token::Char('/')]).collect();
                    paths.extend(tokens.iter().map(|tokens| [base.as_slice(), tokens].concat()));
                }
            }
        }
        if paths.len() > ALTERNATIVES {
            paths = vec![vec![Token::Any]];
        }
        Named { paths }
    }
}

/// The alternatives of the braces of a glob. Too many, or odd ones, are anything.
fn braces(glob: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![glob.to_owned()];
    while let Some(glob) = open.pop() {
        let Some((start, end, commas)) = brace(&glob) else {
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
        if open.len() + done.len() > ALTERNATIVES {
            return vec!["/**".to_owned()];
        }
    }
    done
}

/// The first pair of braces, and the commas that part it.
fn brace(glob: &str) -> Option<(usize, usize, Vec<usize>)> {
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

/// A glob without braces. `**/` is any number of directories, and none.
fn tokens(glob: &str) -> Vec<Vec<Token>> {
    let mut all: Vec<Vec<Token>> = vec![Vec::new()];
    let mut rest = glob;
    let mut fresh = true;
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        if fresh && let Some(below) = rest.strip_prefix("**/") {
            let without = all.clone();
            all.iter_mut().for_each(|tokens| tokens.extend([Token::Any, Token::Char('/')]));
            all.extend(without);
            rest = below;
            if all.len() > ALTERNATIVES {
                return vec![vec![Token::Any]];
            }
            continue;
        }
        let (token, after) = match letter {
            '*' if after.starts_with('*') => (Token::Any, after.trim_start_matches('*')),
            '*' => (Token::Name, after),
            '?' => (Token::One, after),
            '[' => match set(after) {
                Some(after) => (Token::One, after),
                None => (Token::Char('['), after),
            },
            '\\' => match after.chars().next() {
                Some(letter) => (Token::Char(letter), after.get(letter.len_utf8()..).unwrap_or_default()),
                None => (Token::Char('\\'), after),
            },
            letter => (Token::Char(letter), after),
        };
        all.iter_mut().for_each(|tokens| tokens.push(token));
        fresh = letter == '/';
        rest = after;
    }
    all
}

/// What follows a set.
fn set(rest: &str) -> Option<&str> {
    let inner = rest.trim_start_matches(['!', '^']);
    let first = inner.chars().next()?;
    let (_, after) = inner.get(first.len_utf8()..)?.split_once(']')?;
    Some(after)
}

/// A shape as a path from the root: relative ones begin in the directory, and `.` and `..` are worked out.
pub(super) fn absolute(cwd: &str, atoms: &[Atom]) -> Vec<Token> {
    let mut parts: Vec<Vec<Atom>> = Vec::new();
    let rooted = matches!(atoms.first(), Some(Atom::Char('/') | Atom::Cwd | Atom::Any | Atom::Loose));
    if !rooted {
        parts.extend(names(cwd));
    }
    let mut part: Vec<Atom> = Vec::new();
    for atom in atoms.iter().chain([&Atom::Char('/')]) {
        match atom {
            Atom::Char('/') => add(&mut parts, std::mem::take(&mut part)),
            Atom::Cwd if part.is_empty() && parts.is_empty() => parts.extend(names(cwd)),
            Atom::Cwd => part.push(Atom::Any),
            atom => part.push(atom.clone()),
        }
    }
    let mut tokens = Vec::new();
    for part in parts {
        // Any text brings its own slashes.
        let begins = matches!(part.first(), Some(Atom::Any | Atom::Loose)) && tokens.is_empty();
        if !begins {
            tokens.push(Token::Char('/'));
        }
        if matches!(part.first(), Some(Atom::One | Atom::Star | Atom::Deep)) {
            tokens.push(Token::Shown);
        }
        tokens.extend(part.iter().map(token));
    }
    tokens
}

/// A shape as it is spelled, worked out in no way.
pub(super) fn spelled(atoms: &[Atom]) -> Vec<Token> {
    atoms.iter().map(token).collect()
}

fn names(path: &str) -> impl Iterator<Item = Vec<Atom>> {
    path.split('/').filter(|name| !name.is_empty()).map(|name| name.chars().map(Atom::Char).collect())
}

/// Adds one part of a path.
fn add(parts: &mut Vec<Vec<Atom>>, part: Vec<Atom>) {
    match part.as_slice() {
        [] | [Atom::Char('.')] => {}
        [Atom::Char('.'), Atom::Char('.')] => {
            let wide = parts.iter().flatten().any(|a| matches!(a, Atom::Any | Atom::Loose | Atom::Deep));
            if wide {
                *parts = vec![vec![Atom::Any]];
            } else {
                parts.pop();
            }
        }
        // With a dot of its own it may be `..`: any text covers that, and hidden names too.
        [Atom::Char('.'), rest @ ..]
            if rest.iter().all(|atom| !matches!(atom, Atom::Char(c) if *c != '.')) =>
        {
            *parts = vec![vec![Atom::Any]];
        }
        _ => parts.push(part),
    }
}

fn token(atom: &Atom) -> Token {
    match atom {
        Atom::Char(letter) => Token::Char(*letter),
        Atom::One => Token::One,
        Atom::Star | Atom::Name => Token::Name,
        Atom::Deep => Token::Deep,
        Atom::Digits => Token::Digits,
        Atom::Any | Atom::Loose | Atom::Cwd | Atom::Several | Atom::Variable(_) => Token::Any,
    }
}

/// What a token takes at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    One(char),
    Digit,
    Flag,
    NoSlash,
    All,
}

impl Class {
    fn of(token: Token) -> Option<Class> {
        Some(match token {
            Token::Char(letter) => Class::One(letter),
            Token::One | Token::Name => Class::NoSlash,
            Token::Digits => Class::Digit,
            Token::Flag => Class::Flag,
            Token::Any | Token::Deep => Class::All,
            Token::Shown => return None,
        })
    }

    fn takes(self, letter: char) -> bool {
        match self {
            Class::One(own) => own == letter,
            Class::Digit => letter.is_ascii_digit() || "-_:TZW".contains(letter),
            Class::Flag => letter != '/' && letter != '.',
            Class::NoSlash => letter != '/',
            Class::All => true,
        }
    }

    /// Whether two have a character in common, and whether that may be a slash or has to be a dot.
    fn meet(self, other: Class, shown: bool) -> Option<Met> {
        let exact = match (self, other) {
            (Class::One(letter), other) | (other, Class::One(letter)) => {
                if !other.takes(letter) {
                    return None;
                }
                Some(letter)
            }
            _ => None,
        };
        if shown && exact == Some('.') {
            return None;
        }
        let slash = exact.map_or(self == Class::All && other == Class::All, |letter| letter == '/');
        Some(Met { slash, other: exact != Some('/') })
    }
}

/// Which characters two classes share.
struct Met {
    slash: bool,
    other: bool,
}

fn repeats(token: Token) -> bool {
    matches!(token, Token::Digits | Token::Flag | Token::Name | Token::Any | Token::Deep)
}

/// Whether one path fits both: a walk over the places of both at once.
pub(super) fn meet(word: &[Token], rule: &[Token]) -> bool {
    if !ends_alike(word, rule) {
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
        if own == Some(Token::Shown) {
            open.push((at + 1, by, true));
            continue;
        }
        if own.is_some_and(repeats) {
            open.push((at + 1, by, shown));
        }
        if other.is_some_and(repeats) {
            open.push((at, by + 1, shown));
        }
        let (Some(own), Some(other)) = (own, other) else { continue };
        let (Some(first), Some(second)) = (Class::of(own), Class::of(other)) else { continue };
        let Some(met) = first.meet(second, shown) else { continue };
        let next = (at + usize::from(!repeats(own)), by + usize::from(!repeats(other)));
        if met.other {
            open.push((next.0, next.1, false));
        }
        if met.slash {
            open.push((next.0, next.1, own == Token::Deep));
        }
    }
    false
}

/// At a glance: the plain characters at both ends have to be the same.
fn ends_alike(word: &[Token], rule: &[Token]) -> bool {
    for pair in word.iter().rev().zip(rule.iter().rev()) {
        match pair {
            (Token::Char(a), Token::Char(b)) if a == b => {}
            (Token::Char(_), Token::Char(_)) => return false,
            _ => return true,
        }
    }
    true
}
