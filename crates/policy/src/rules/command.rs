//! Which commands a rule is about: the words of a rule against the words of a command, read twice.
//!
//! Here: the strict reading, by which a rule allows, and the loose one, by which it asks and denies. Elsewhere: what is
//! known of commands (`table`), what a shell line runs (`crate::shell`), whether its words lead outside (`fit`).
//! The strict reading takes nothing for granted: it must know each word that names the command, nothing unknown may
//! stand between them, and no flag may follow that makes another command of it. The loose one lets nothing slip: it
//! looks through directories, flags between words and other spellings.
//! Invariant: what is fit strictly is fit loosely too (`what_allows_would_also_deny`).

use crate::shell::{Atom, Command, Shape, Word, base_name};

use super::pattern::{Token, meet, spelled};
use super::table;
use super::word::{is_harmless, is_plain_glob, is_single, plain_program};

/// How many words a proposed rule has at most.
const PROPOSED: usize = 8;

/// Whether a rule is about something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    No,
    /// It depends on what is only known when the line runs.
    Maybe,
    Yes,
}

/// The words of a rule. Quotes keep words together, as in a shell; anything else that a shell would work out is an
/// error.
pub(super) fn words_of(text: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut open: Option<String> = None;
    let mut quote: Option<char> = None;
    for letter in text.chars() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (Some(_), _) => open.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                open.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(open.take()),
            (None, ';' | '|' | '&' | '<' | '>' | '(' | ')' | '$' | '`' | '\\' | '*' | '?') => {
                return Err(format!(
                    "`{letter}` has no meaning in the words of a command: a rule names the first words, and whatever \
                     follows fits (put it in quotes if it is meant)"
                ));
            }
            (None, _) => open.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(open);
    match words.first() {
        None => Err("a command has at least one word".to_owned()),
        Some(first) if first.is_empty() => Err("the first word of a command is its name".to_owned()),
        Some(first) if is_assignment(first) => Err(format!(
            "`{first}` sets a variable; name the command alone: settings before it are seen through"
        )),
        Some(_) => Ok(words),
    }
}

/// What a command calls itself, strictly: the words that name it, and where the others begin. None if one of them is not
/// known, or if a flag stands between them that could mean anything.
fn named(words: &[Word]) -> Option<(Vec<&str>, usize)> {
    let mut names = vec![words.first()?.known()?];
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let goes_on = word.known().is_some_and(|word| table::is_key(&names, word));
        if names.len() >= table::arity(&names) && !goes_on {
            break;
        }
        let word = word.known()?;
        if (is_flag(word) || word.starts_with('+')) && !table::is_key(&names, word) {
            let taken = table::skipped(&names, word)?;
            words.get(at..at + taken)?.iter().try_for_each(|word| word.known().map(drop))?;
            at += taken;
        } else {
            names.push(word);
            at += 1;
        }
    }
    Some((names, at))
}

/// Whether a rule cannot be about a command, seen at a glance: most rules name another program.
pub(super) fn is_another(rule: &str, command: &Command) -> bool {
    let first = rule.split_whitespace().next().unwrap_or_default();
    match command.words.first() {
        Some(Word::Known(name)) if !first.contains(['"', '\'']) => base_name(first) != base_name(name),
        _ => false,
    }
}

/// The words of a command for which a rule vouches, if it does: what follows them is for the caller to look at.
pub(super) struct Vouched<'a> {
    /// The words that follow those of the rule.
    pub(super) rest: &'a [Word],
    /// Its words are text: none is a path.
    pub(super) text: bool,
    /// Which of the words that follow is a pattern or a program and no path.
    pub(super) pattern: Option<usize>,
}

/// The strict reading.
pub(super) fn vouches<'a>(rule: &[String], command: &'a Command) -> Option<Vouched<'a>> {
    if command.opaque.is_some()
        || command.assignments.iter().any(|(name, _)| !crate::shell::harmless_name(name))
    {
        return None;
    }
    let words = command.words.as_slice();
    let (names, rest) = match named(words) {
        Some((names, rest)) => prefix(rule, &names, words, rest).map(|rest| (names, rest)),
        None => None,
    }
    .or_else(|| exactly(rule, words))?;
    let rest = words.get(rest..)?;
    if table::runs(names.first()?) && rule.len() < 2 && !names_a_script(rest) {
        return None;
    }
    if rest.iter().any(|word| is_danger(&names, word, rest)) {
        return None;
    }
    if rest.iter().any(|word| is_strange_flag(&names, word, rule)) {
        return None;
    }
    let text = table::is_text(&names);
    if !text && rest.iter().any(|word| matches!(word, Word::Unknown { raw, .. } if !is_harmless(raw))) {
        return None;
    }
    let pattern = if table::has_program(&names) {
        Some(plain_program(names.first()?, rest)?)
    } else {
        table::has_pattern(&names).then(|| pattern_at(rest)).flatten()
    };
    Some(Vouched { rest, text, pattern })
}

/// Where the words that follow a rule begin, if the rule's words are those that name the command and what follows.
fn prefix(rule: &[String], names: &[&str], words: &[Word], rest: usize) -> Option<usize> {
    let (named, more) = rule.split_at(rule.len().min(names.len()));
    if named.iter().zip(names).any(|(a, b)| a != b) {
        return None;
    }
    begins_with(words.get(rest..)?, more).then_some(rest + more.len())
}

/// A rule that itself has flags among its first words fits what begins with exactly these.
fn exactly<'a>(rule: &[String], words: &'a [Word]) -> Option<(Vec<&'a str>, usize)> {
    let has_flags = rule.iter().any(|word| is_flag(word));
    if !has_flags || !begins_with(words, rule) {
        return None;
    }
    let (names, _) = named(words.get(..rule.len())?).unwrap_or((vec![words.first()?.known()?], 1));
    if names.len() >= table::arity(&names) {
        return Some((names, rule.len()));
    }
    // The name is not whole yet, so what follows could still change all of it.
    let mut at = rule.len();
    while let Some(word) = words.get(at) {
        let word = word.known()?;
        if !is_flag(word) {
            break;
        }
        at += table::skipped(&names, word)?;
    }
    Some((names, rule.len()))
}

fn begins_with(words: &[Word], wanted: &[String]) -> bool {
    words.len() >= wanted.len() && words.iter().zip(wanted).all(|(word, wanted)| word.known() == Some(wanted))
}

/// A script file, first of all words: what an interpreter is trusted with by a rule for its bare name.
fn names_a_script(rest: &[Word]) -> bool {
    rest.first().and_then(Word::known).is_some_and(|word| !word.starts_with('-') && word.contains(['.', '/']))
}

/// Whether a word makes another command of it.
fn is_danger(names: &[&str], word: &Word, rest: &[Word]) -> bool {
    let mut dangers = table::dangers(names).peekable();
    if dangers.peek().is_none() {
        return false;
    }
    let word = match word {
        Word::Known(word) => word,
        // Flags come before text.
        Word::Unknown { .. } if table::is_text(names) => {
            return rest.first().and_then(Word::known).is_none_or(is_flag);
        }
        // What a glob gives could be a flag, unless it begins with something else.
        Word::Unknown { raw, .. } => {
            return !is_harmless(raw) || (is_plain_glob(raw) && raw.starts_with(['*', '?', '[', '{']));
        }
    };
    let operands = || rest.iter().filter(|word| !word.known().is_some_and(is_flag)).count();
    let whole = table::has_whole_flags(names);
    dangers.any(|danger| match danger {
        "*" => true,
        "*2" => operands() > 1,
        _ => is_dangerous(word, danger, whole),
    })
}

/// Whether a word is a flag of the table; `whole` says that letters are not bundled.
fn is_dangerous(word: &str, danger: &str, whole: bool) -> bool {
    if whole && danger.len() == 2 && danger.starts_with('-') {
        let bare = word.split('=').next().unwrap_or(word);
        return bare == danger || bare.strip_prefix('-') == Some(danger);
    }
    is_flag_like(word, danger)
}

/// Whether a word is one that makes another command of what these words name.
pub(super) fn is_danger_word(names: &[&str], word: &Word) -> bool {
    let Word::Known(word) = word else { return false };
    let whole = table::has_whole_flags(names);
    let danger = |danger: &str| danger == "*" || (danger != "*2" && is_dangerous(word, danger, whole));
    let listed = || match table::flags(names) {
        table::Flags::Listed(listed) => !is_flag(word) || is_listed(word, &listed),
        table::Flags::Unknown | table::Flags::Reviewed => true,
    };
    table::dangers(names).any(danger) || !listed()
}

/// Whether a word is a flag, or a file with flags in it, of which nothing is known and that the rule does not name.
fn is_strange_flag(names: &[&str], word: &Word, rule: &[String]) -> bool {
    let word = match word {
        Word::Known(word) => word,
        // A name that a glob finds could begin with a dash.
        Word::Unknown { raw, .. } => {
            return raw.starts_with(['*', '?', '[', '{']) && table::flags(names) == table::Flags::Unknown;
        }
    };
    if !(is_flag(word) || (word.starts_with(['+', '@']) && word.len() > 1)) {
        return false;
    }
    if matches!(word.as_str(), "--" | "--help" | "--version") || rule.contains(word) {
        return false;
    }
    match table::flags(names) {
        table::Flags::Unknown => true,
        table::Flags::Reviewed => false,
        table::Flags::Listed(listed) => !is_listed(word, &listed),
    }
}

/// Whether a flag is one of a list: whole, with a value behind `=`, by what it begins with, or as letters of which each
/// is one.
fn is_listed(word: &str, listed: &[&str]) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    let whole = |flag: &&str| match flag.strip_suffix('*') {
        Some(begin) => word.starts_with(begin),
        None => word == *flag || (name == *flag && flag.len() > 2),
    };
    let letters = || {
        cluster(word).is_some_and(|letters| {
            // `-j8`: a number belongs to one letter.
            let number = letters.get(1..).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
            let flags = if number { letters.get(..1).unwrap_or_default() } else { letters };
            let each = |letter: char| {
                listed.iter().any(|flag| cluster(flag).is_some_and(|own| own.chars().eq([letter])))
            };
            !flags.is_empty() && flags.chars().all(each)
        })
    };
    listed.iter().any(whole) || letters()
}

/// Whether a word is, or could be taken for, a flag: abbreviated, with a value, or among other letters.
fn is_flag_like(word: &str, flag: &str) -> bool {
    if let Some(begin) = flag.strip_suffix('*').filter(|begin| !begin.is_empty()) {
        return word.starts_with(begin);
    }
    let bare = word.split(['=', ':']).next().unwrap_or(word);
    if bare == flag {
        return true;
    }
    if let Some(long) = flag.strip_prefix("--") {
        return bare.strip_prefix("--").is_some_and(|word| !word.is_empty() && long.starts_with(word));
    }
    match flag.strip_prefix('-').map(|letters| (letters, letters.chars().count())) {
        Some((letter, 1)) => cluster(word).is_some_and(|cluster| cluster.contains(letter)),
        // Some programs take their long flags with one dash or with two.
        Some((name, _)) => bare.trim_start_matches('-') == name && bare.starts_with('-'),
        None => word == flag || bare == flag,
    }
}

/// The letters behind a single dash.
fn cluster(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'))
}

/// Where the pattern of a search stands, unless a flag could have brought it.
pub(super) fn pattern_at(rest: &[Word]) -> Option<usize> {
    let brings = |word: &Word| match word.known() {
        Some(word) => ["-e", "-f", "--regexp", "--file"].iter().any(|flag| is_flag_like(word, flag)),
        None => true,
    };
    let at = rest.iter().position(|word| !word.known().is_some_and(is_flag))?;
    (!rest.iter().take(at).any(brings)).then_some(at)
}

/// The loose reading: whether a command is one that the rule names, however it is spelled.
pub(super) fn names(rule: &[String], command: &Command) -> Fit {
    let Some(program) = rule.first().map(|first| base_name(first)) else { return Fit::No };
    let certain = match command.words.first() {
        None => return Fit::No,
        Some(Word::Unknown { .. }) => Fit::Maybe,
        Some(Word::Known(word)) if table::is_same(&[], base_name(word), program) => Fit::Yes,
        Some(Word::Known(_)) => return Fit::No,
    };
    let wanted = Wanted::of(program, rule);
    let words = command.words.get(1..).unwrap_or_default();
    let (flagged, given) = (wanted.flagged_by(words), wanted.given_by(words));
    // One word that is not known yet cannot be a flag and something else at once.
    let unknown = words.iter().filter_map(|word| match word {
        Word::Unknown { raw, .. } => Some(if is_single(raw) { 1 } else { 2 }),
        Word::Known(_) => None,
    });
    if flagged == Fit::Maybe && given == Fit::Maybe && unknown.sum::<usize>() < 2 {
        return Fit::No;
    }
    certain.min(wanted.named_by(words)).min(flagged).min(given)
}

/// The words of a rule, by what they are.
struct Wanted<'a> {
    /// The words that name the command, the program first.
    names: Vec<&'a str>,
    flags: Vec<&'a str>,
    operands: Vec<&'a str>,
}

impl<'a> Wanted<'a> {
    fn of(program: &'a str, rule: &'a [String]) -> Wanted<'a> {
        let mut wanted = Wanted { names: vec![program], flags: Vec::new(), operands: Vec::new() };
        for word in rule.iter().skip(1).map(String::as_str) {
            let open = wanted.names.len() < table::arity(&wanted.names);
            if is_flag(word) && !table::is_key(&wanted.names, word) {
                wanted.flags.push(word);
            } else if open || table::is_key(&wanted.names, word) {
                wanted.names.push(word);
            } else {
                wanted.operands.push(word);
            }
        }
        wanted
    }

    /// Whether the words that name the command come in this order, with nothing but flags and their values between.
    fn named_by(&self, words: &[Word]) -> Fit {
        // How sure it is, for each number of names, that they were found before the word we are at. A flag may or may
        // not take the next word along, so both are followed.
        let mut found = vec![Fit::No; self.names.len()];
        if let Some(first) = found.first_mut() {
            *first = Fit::Yes;
        }
        let mut carried = found.iter().map(|_| Fit::No).collect::<Vec<Fit>>();
        let mut best = found.last().copied().unwrap_or(Fit::No);
        for word in words {
            let mut next = std::mem::replace(&mut carried, vec![Fit::No; self.names.len()]);
            for (count, sure) in found.iter().copied().enumerate().filter(|(_, sure)| *sure > Fit::No) {
                let name = self.names.get(count + 1);
                match (word, name) {
                    (Word::Known(word), Some(name)) if self.is_name(count, word, name) => {
                        raise(&mut next, count + 1, sure);
                    }
                    (Word::Unknown { .. }, _) => {
                        raise(&mut next, count + 1, Fit::Maybe);
                        raise(&mut next, count, Fit::Maybe);
                    }
                    _ => {}
                }
                if word
                    .known()
                    .is_some_and(|word| is_flag(word) || word.starts_with('+') || is_assignment(word))
                {
                    raise(&mut next, count, sure);
                    raise(&mut carried, count, sure);
                }
            }
            best = best.max(next.last().copied().unwrap_or(Fit::No));
            found = next;
        }
        best
    }

    fn is_name(&self, count: usize, word: &str, name: &str) -> bool {
        table::is_same(self.names.get(..=count).unwrap_or_default(), word, name)
    }

    /// Whether each flag is among the words, in whatever spelling.
    fn flagged_by(&self, words: &[Word]) -> Fit {
        // What `find` puts in for `{}` begins with where it looks.
        let words: Vec<Word> = words
            .iter()
            .filter(|word| !matches!(word, Word::Unknown { raw, .. } if raw == "{}"))
            .cloned()
            .collect();
        let has = |flag: &str| {
            sought(&words, could_be_flag, |word| {
                is_flag_like(word, flag) || table::is_same(&self.names, word, flag)
            })
        };
        let fits = self.flags.iter().map(|flag| match cluster(flag) {
            // Letters may stand apart, in another order, and be spelled out.
            Some(letters) if letters.chars().count() <= 3 && letters.chars().all(char::is_alphabetic) => {
                let each = letters.chars().map(|letter| {
                    let long = table::long_spellings(&self.names, letter);
                    long.fold(has(&format!("-{letter}")), |fit, long| fit.max(has(long)))
                });
                has(flag).max(each.min().unwrap_or(Fit::No))
            }
            _ => has(flag),
        });
        fits.min().unwrap_or(Fit::Yes)
    }

    /// Whether each other word is among the words.
    fn given_by(&self, words: &[Word]) -> Fit {
        let fits = self.operands.iter().map(|wanted| {
            sought(words, |shape| could_be(shape, wanted), |word| is_same_operand(word, wanted))
        });
        fits.min().unwrap_or(Fit::Yes)
    }
}

fn raise(fits: &mut [Fit], at: usize, to: Fit) {
    if let Some(fit) = fits.get_mut(at) {
        *fit = (*fit).max(to);
    }
}

fn sought(words: &[Word], could: impl Fn(&Shape) -> bool, is: impl Fn(&str) -> bool) -> Fit {
    let fit = |word: &Word| match word {
        Word::Known(word) if is(word) => Fit::Yes,
        Word::Unknown { shape, .. } if could(shape) => Fit::Maybe,
        Word::Known(_) | Word::Unknown { .. } => Fit::No,
    };
    words.iter().map(fit).max().unwrap_or(Fit::No)
}

/// Whether a word that is not known could be a flag: a dash and no name of a file.
fn could_be_flag(shape: &Shape) -> bool {
    let flag = [Token::Char('-'), Token::Flag];
    shape.0.is_empty() || shape.0.iter().any(|atoms| meet(&spelled(atoms), &flag))
}

/// Whether it could be this word, or the path that it names.
fn could_be(shape: &Shape, wanted: &str) -> bool {
    let literal: Vec<Token> = wanted.chars().map(Token::Char).collect();
    let rooted = |atoms: &[Atom]| match atoms.first() {
        Some(Atom::Char(letter)) => *letter == '/' || *letter == '.',
        Some(Atom::One | Atom::Star | Atom::Deep | Atom::Name | Atom::Digits) => false,
        Some(_) => true,
        None => false,
    };
    let path = wanted.starts_with('/');
    shape.0.is_empty()
        || shape.0.iter().any(|atoms| (path && rooted(atoms)) || meet(&spelled(atoms), &literal))
}

/// Paths are the same with and without their empty and dotted parts.
fn is_same_operand(word: &str, wanted: &str) -> bool {
    word == wanted
        || (word.starts_with('/') && wanted.starts_with('/') && {
            super::word::absolute("/", word) == super::word::absolute("/", wanted)
        })
}

/// Whether a word is a flag. A dash alone is a file.
pub(super) fn is_flag(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && !name.starts_with(|letter: char| letter.is_ascii_digit())
    })
}

/// The first words of a command that would name it in a rule, and whether a rule may be proposed for it.
pub(super) fn proposable(command: &Command, with_flags: bool) -> Option<Vec<&str>> {
    if command.opaque.is_some() {
        return None;
    }
    let (names, _) = named(&command.words)?;
    let first = *names.first()?;
    let alone = names.len() < 2 && (table::runs(first) || table::arity(&names) > 1);
    let alone = alone || table::wraps(first);
    let dangerous = table::dangers(&names).any(|danger| danger == "*");
    if first.contains('/') || alone || dangerous || table::is_grave(&names) {
        return None;
    }
    if !with_flags {
        return Some(names);
    }
    let strange = |word: &Word| is_strange_flag(&names, word, &[]);
    let last = command.words.iter().rposition(strange).filter(|last| *last < PROPOSED)?;
    command.words.iter().take(last + 1).map(Word::known).collect()
}
