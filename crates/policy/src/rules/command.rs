//! Matches the words of a rule with the words of a command, in a strict and in a loose way.
//!
//! An `allow` rule matches strictly: every word that names the command must be known, no unknown word may
//! occur between them, and no flag may change the command. `ask` and `deny` rules match loosely: the match
//! ignores directories, flags between words and alternative spellings. `command_table` has the facts about
//! commands, `crate::shell` parses shell lines, and `matching` checks that the remaining words stay inside
//! the scope.
//! Invariant: a command that matches strictly also matches loosely (`what_allows_would_also_deny`).

use crate::shell::{ShapeAtom, ShellCommand, ShellWord, WordShape, base_name};

use super::command_table;
use super::operand::{is_harmless_word, is_plain_glob, is_single_word, plain_program_index};
use super::path_pattern::{PatternToken, literal_pattern, patterns_intersect};

/// The maximum number of words of a proposed rule.
const MAX_PROPOSED_WORDS: usize = 8;

/// Whether a rule matches something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RuleMatch {
    No,
    /// Depends on values that are known only at run time.
    Maybe,
    Yes,
}

/// Parses the words of a rule. Quotes keep words together as in a shell; any other shell syntax is an error.
pub(super) fn parse_rule_words(text: &str) -> Result<Vec<String>, String> {
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
                    "`{letter}` has no meaning in the words of a command: a rule names the first words and matches any \
                     further words (quote it to match it literally)"
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
            "`{first}` sets a variable; name only the command: the rule ignores variables before it"
        )),
        Some(_) => Ok(words),
    }
}

/// Returns the words that name a command, by the strict rules, and the index of the first other word. Returns
/// `None` if one of them is unknown or there is an unknown flag between them.
fn split_command_name(words: &[ShellWord]) -> Option<(Vec<&str>, usize)> {
    let mut names = vec![words.first()?.as_known()?];
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let goes_on = word.as_known().is_some_and(|word| command_table::extends_name(&names, word));
        if names.len() >= command_table::name_arity(&names) && !goes_on {
            break;
        }
        let word = word.as_known()?;
        if (is_flag(word) || word.starts_with('+')) && !command_table::extends_name(&names, word) {
            let taken = command_table::skipped_words(&names, word)?;
            words.get(at..at + taken)?.iter().try_for_each(|word| word.as_known().map(drop))?;
            at += taken;
        } else {
            names.push(word);
            at += 1;
        }
    }
    Some((names, at))
}

/// Quickly returns whether a rule names another program than the command. Most rules do.
pub(super) fn names_other_program(rule: &str, command: &ShellCommand) -> bool {
    let first = rule.split_whitespace().next().unwrap_or_default();
    match command.words.first() {
        Some(ShellWord::Known(name)) if !first.contains(['"', '\'']) => base_name(first) != base_name(name),
        _ => false,
    }
}

/// A command that an `allow` rule matches. The caller checks the remaining words.
pub(super) struct AllowedCommand<'a> {
    /// The words after those of the rule.
    pub(super) rest: &'a [ShellWord],
    /// The remaining words are text, not paths.
    pub(super) is_text: bool,
    /// The index of a remaining word that is a pattern or a program, not a path.
    pub(super) pattern_index: Option<usize>,
}

/// Matches an `allow` rule strictly.
pub(super) fn match_allow_rule<'a>(rule: &[String], command: &'a ShellCommand) -> Option<AllowedCommand<'a>> {
    if command.opaque_reason.is_some()
        || command.assignments.iter().any(|(name, _)| !crate::shell::is_harmless_variable(name))
    {
        return None;
    }
    let words = command.words.as_slice();
    let (names, rest) = match split_command_name(words) {
        Some((names, rest)) => match_name_prefix(rule, &names, words, rest).map(|rest| (names, rest)),
        None => None,
    }
    .or_else(|| match_exact_words(rule, words))?;
    let rest = words.get(rest..)?;
    if command_table::is_launcher(names.first()?) && rule.len() < 2 && !starts_with_script(rest) {
        return None;
    }
    if rest.iter().any(|word| changes_command(&names, word, rest)) {
        return None;
    }
    if rest.iter().any(|word| is_unknown_flag(&names, word, rule)) {
        return None;
    }
    let is_text = command_table::has_text_arguments(&names);
    if !is_text
        && rest.iter().any(|word| matches!(word, ShellWord::Unknown { raw, .. } if !is_harmless_word(raw)))
    {
        return None;
    }
    let pattern_index = if command_table::takes_program(&names) {
        Some(plain_program_index(names.first()?, rest)?)
    } else {
        command_table::takes_pattern(&names).then(|| find_pattern_index(rest)).flatten()
    };
    Some(AllowedCommand { rest, is_text, pattern_index })
}

/// Returns the index after the words of the rule, if the rule consists of the command's name and the words
/// after it.
fn match_name_prefix(rule: &[String], names: &[&str], words: &[ShellWord], rest: usize) -> Option<usize> {
    let (named, more) = rule.split_at(rule.len().min(names.len()));
    if named.iter().zip(names).any(|(a, b)| a != b) {
        return None;
    }
    starts_with_words(words.get(rest..)?, more).then_some(rest + more.len())
}

/// Matches a rule that contains flags: the command must begin with exactly the words of the rule.
fn match_exact_words<'a>(rule: &[String], words: &'a [ShellWord]) -> Option<(Vec<&'a str>, usize)> {
    let has_flags = rule.iter().any(|word| is_flag(word));
    if !has_flags || !starts_with_words(words, rule) {
        return None;
    }
    let (names, _) =
        split_command_name(words.get(..rule.len())?).unwrap_or((vec![words.first()?.as_known()?], 1));
    if names.len() >= command_table::name_arity(&names) {
        return Some((names, rule.len()));
    }
    // The name is incomplete, so the following words could still change it.
    let mut at = rule.len();
    while let Some(word) = words.get(at) {
        let word = word.as_known()?;
        if !is_flag(word) {
            break;
        }
        at += command_table::skipped_words(&names, word)?;
    }
    Some((names, rule.len()))
}

fn starts_with_words(words: &[ShellWord], wanted: &[String]) -> bool {
    words.len() >= wanted.len()
        && words.iter().zip(wanted).all(|(word, wanted)| word.as_known() == Some(wanted))
}

/// Returns whether the first word is a script file. A rule for a bare interpreter allows only that.
fn starts_with_script(rest: &[ShellWord]) -> bool {
    rest.first()
        .and_then(ShellWord::as_known)
        .is_some_and(|word| !word.starts_with('-') && word.contains(['.', '/']))
}

/// Returns whether a word makes the command a different one.
fn changes_command(names: &[&str], word: &ShellWord, rest: &[ShellWord]) -> bool {
    let mut dangers = command_table::dangerous_flags(names).peekable();
    if dangers.peek().is_none() {
        return false;
    }
    let word = match word {
        ShellWord::Known(word) => word,
        // Flags come before text.
        ShellWord::Unknown { .. } if command_table::has_text_arguments(names) => {
            return rest.first().and_then(ShellWord::as_known).is_none_or(is_flag);
        }
        // A name that a glob expands to could be a flag, unless the word begins with something else.
        ShellWord::Unknown { raw, .. } => {
            return !is_harmless_word(raw) || (is_plain_glob(raw) && raw.starts_with(['*', '?', '[', '{']));
        }
    };
    let operands = || rest.iter().filter(|word| !word.as_known().is_some_and(is_flag)).count();
    let whole = command_table::has_whole_flags(names);
    dangers.any(|danger| match danger {
        "*" => true,
        "*2" => operands() > 1,
        _ => matches_danger(word, danger, whole),
    })
}

/// Returns whether a word is a dangerous flag; `whole` means that letters after one dash are not separate
/// flags.
fn matches_danger(word: &str, danger: &str, whole: bool) -> bool {
    if whole && danger.len() == 2 && danger.starts_with('-') {
        let bare = word.split('=').next().unwrap_or(word);
        return bare == danger || bare.strip_prefix('-') == Some(danger);
    }
    is_flag_like(word, danger)
}

/// Returns whether a word makes the named command a different one.
pub(super) fn may_change_command(names: &[&str], word: &ShellWord) -> bool {
    let ShellWord::Known(word) = word else { return false };
    let whole = command_table::has_whole_flags(names);
    let danger = |danger: &str| danger == "*" || (danger != "*2" && matches_danger(word, danger, whole));
    let listed = || match command_table::flag_knowledge(names) {
        command_table::FlagKnowledge::Listed(listed) => !is_flag(word) || is_listed_flag(word, &listed),
        command_table::FlagKnowledge::Unknown | command_table::FlagKnowledge::Reviewed => true,
    };
    command_table::dangerous_flags(names).any(danger) || !listed()
}

/// Returns whether a word is an unknown flag, or a response file that may contain flags, that the rule does
/// not name.
fn is_unknown_flag(names: &[&str], word: &ShellWord, rule: &[String]) -> bool {
    let word = match word {
        ShellWord::Known(word) => word,
        // A name that a glob expands to could begin with a dash.
        ShellWord::Unknown { raw, .. } => {
            return raw.starts_with(['*', '?', '[', '{'])
                && command_table::flag_knowledge(names) == command_table::FlagKnowledge::Unknown;
        }
    };
    if !(is_flag(word) || (word.starts_with(['+', '@']) && word.len() > 1)) {
        return false;
    }
    if matches!(word.as_str(), "--" | "--help" | "--version") || rule.contains(word) {
        return false;
    }
    match command_table::flag_knowledge(names) {
        command_table::FlagKnowledge::Unknown => true,
        command_table::FlagKnowledge::Reviewed => false,
        command_table::FlagKnowledge::Listed(listed) => !is_listed_flag(word, &listed),
    }
}

/// Returns whether a flag is listed: as a whole, with a value after `=`, by its prefix, or as a group of
/// letters that are all listed.
fn is_listed_flag(word: &str, listed: &[&str]) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    let whole = |flag: &&str| match flag.strip_suffix('*') {
        Some(begin) => word.starts_with(begin),
        None => word == *flag || (name == *flag && flag.len() > 2),
    };
    let letters = || {
        short_flags(word).is_some_and(|letters| {
            // `-j8`: a number belongs to a single letter.
            let number = letters.get(1..).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
            let flags = if number { letters.get(..1).unwrap_or_default() } else { letters };
            let each = |letter: char| {
                listed.iter().any(|flag| short_flags(flag).is_some_and(|own| own.chars().eq([letter])))
            };
            !flags.is_empty() && flags.chars().all(each)
        })
    };
    listed.iter().any(whole) || letters()
}

/// Returns whether a word is a flag or could be one: abbreviated, with a value, or in a group of letters.
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
        Some((letter, 1)) => short_flags(word).is_some_and(|cluster| cluster.contains(letter)),
        // Some programs accept long flags with one dash or two.
        Some((name, _)) => bare.trim_start_matches('-') == name && bare.starts_with('-'),
        None => word == flag || bare == flag,
    }
}

/// Returns the letters after a single dash.
fn short_flags(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'))
}

/// Returns the index of the search pattern, unless a flag may already have given it.
pub(super) fn find_pattern_index(rest: &[ShellWord]) -> Option<usize> {
    let brings = |word: &ShellWord| match word.as_known() {
        Some(word) => ["-e", "-f", "--regexp", "--file"].iter().any(|flag| is_flag_like(word, flag)),
        None => true,
    };
    let at = rest.iter().position(|word| !word.as_known().is_some_and(is_flag))?;
    (!rest.iter().take(at).any(brings)).then_some(at)
}

/// Matches an `ask` or `deny` rule loosely, in any spelling of the command.
pub(super) fn match_restricting_rule(rule: &[String], command: &ShellCommand) -> RuleMatch {
    let Some(program) = rule.first().map(|first| base_name(first)) else { return RuleMatch::No };
    let certain = match command.words.first() {
        None => return RuleMatch::No,
        Some(ShellWord::Unknown { .. }) => RuleMatch::Maybe,
        Some(ShellWord::Known(word)) if command_table::is_synonym(&[], base_name(word), program) => {
            RuleMatch::Yes
        }
        Some(ShellWord::Known(_)) => return RuleMatch::No,
    };
    let wanted = RuleWords::classify(program, rule);
    let words = command.words.get(1..).unwrap_or_default();
    let (flagged, given) = (wanted.match_flags(words), wanted.match_operands(words));
    // A single unknown word cannot be a flag and an operand at once.
    let unknown = words.iter().filter_map(|word| match word {
        ShellWord::Unknown { raw, .. } => Some(if is_single_word(raw) { 1 } else { 2 }),
        ShellWord::Known(_) => None,
    });
    if flagged == RuleMatch::Maybe && given == RuleMatch::Maybe && unknown.sum::<usize>() < 2 {
        return RuleMatch::No;
    }
    certain.min(wanted.match_names(words)).min(flagged).min(given)
}

/// The words of a rule, classified.
struct RuleWords<'a> {
    /// The words that name the command, beginning with the program.
    names: Vec<&'a str>,
    flags: Vec<&'a str>,
    operands: Vec<&'a str>,
}

impl<'a> RuleWords<'a> {
    fn classify(program: &'a str, rule: &'a [String]) -> RuleWords<'a> {
        let mut wanted = RuleWords { names: vec![program], flags: Vec::new(), operands: Vec::new() };
        for word in rule.iter().skip(1).map(String::as_str) {
            let open = wanted.names.len() < command_table::name_arity(&wanted.names);
            if is_flag(word) && !command_table::extends_name(&wanted.names, word) {
                wanted.flags.push(word);
            } else if open || command_table::extends_name(&wanted.names, word) {
                wanted.names.push(word);
            } else {
                wanted.operands.push(word);
            }
        }
        wanted
    }

    /// Returns whether the words that name the command appear in order, separated only by flags and their
    /// values.
    fn match_names(&self, words: &[ShellWord]) -> RuleMatch {
        // The certainty for each number of names found before the current word. A flag may or may not take
        // the next word as its value, so both cases are followed.
        let mut found = vec![RuleMatch::No; self.names.len()];
        if let Some(first) = found.first_mut() {
            *first = RuleMatch::Yes;
        }
        let mut carried = found.iter().map(|_| RuleMatch::No).collect::<Vec<RuleMatch>>();
        let mut best = found.last().copied().unwrap_or(RuleMatch::No);
        for word in words {
            let mut next = std::mem::replace(&mut carried, vec![RuleMatch::No; self.names.len()]);
            for (count, sure) in found.iter().copied().enumerate().filter(|(_, sure)| *sure > RuleMatch::No) {
                let name = self.names.get(count + 1);
                match (word, name) {
                    (ShellWord::Known(word), Some(name)) if self.is_same_name(count, word, name) => {
                        raise_match(&mut next, count + 1, sure);
                    }
                    (ShellWord::Unknown { .. }, _) => {
                        raise_match(&mut next, count + 1, RuleMatch::Maybe);
                        raise_match(&mut next, count, RuleMatch::Maybe);
                    }
                    _ => {}
                }
                if word
                    .as_known()
                    .is_some_and(|word| is_flag(word) || word.starts_with('+') || is_assignment(word))
                {
                    raise_match(&mut next, count, sure);
                    raise_match(&mut carried, count, sure);
                }
            }
            best = best.max(next.last().copied().unwrap_or(RuleMatch::No));
            found = next;
        }
        best
    }

    fn is_same_name(&self, count: usize, word: &str, name: &str) -> bool {
        command_table::is_synonym(self.names.get(..=count).unwrap_or_default(), word, name)
    }

    /// Returns whether each flag is among the words, in any spelling.
    fn match_flags(&self, words: &[ShellWord]) -> RuleMatch {
        // The value that `find` substitutes for `{}` begins with its search directory, so it is not a flag.
        let words: Vec<ShellWord> = words
            .iter()
            .filter(|word| !matches!(word, ShellWord::Unknown { raw, .. } if raw == "{}"))
            .cloned()
            .collect();
        let has = |flag: &str| {
            best_match(&words, could_be_flag, |word| {
                is_flag_like(word, flag) || command_table::is_synonym(&self.names, word, flag)
            })
        };
        let fits = self.flags.iter().map(|flag| match short_flags(flag) {
            // Letters may be separate, in another order, or written as long flags.
            Some(letters) if letters.chars().count() <= 3 && letters.chars().all(char::is_alphabetic) => {
                let each = letters.chars().map(|letter| {
                    let long = command_table::long_flags(&self.names, letter);
                    long.fold(has(&format!("-{letter}")), |fit, long| fit.max(has(long)))
                });
                has(flag).max(each.min().unwrap_or(RuleMatch::No))
            }
            _ => has(flag),
        });
        fits.min().unwrap_or(RuleMatch::Yes)
    }

    /// Returns whether each operand is among the words.
    fn match_operands(&self, words: &[ShellWord]) -> RuleMatch {
        let fits = self.operands.iter().map(|wanted| {
            best_match(words, |shape| could_be_operand(shape, wanted), |word| is_same_operand(word, wanted))
        });
        fits.min().unwrap_or(RuleMatch::Yes)
    }
}

fn raise_match(fits: &mut [RuleMatch], at: usize, to: RuleMatch) {
    if let Some(fit) = fits.get_mut(at) {
        *fit = (*fit).max(to);
    }
}

fn best_match(
    words: &[ShellWord],
    could: impl Fn(&WordShape) -> bool,
    is: impl Fn(&str) -> bool,
) -> RuleMatch {
    let fit = |word: &ShellWord| match word {
        ShellWord::Known(word) if is(word) => RuleMatch::Yes,
        ShellWord::Unknown { shape, .. } if could(shape) => RuleMatch::Maybe,
        ShellWord::Known(_) | ShellWord::Unknown { .. } => RuleMatch::No,
    };
    words.iter().map(fit).max().unwrap_or(RuleMatch::No)
}

/// Returns whether an unknown word could be a flag: a dash and no file name.
fn could_be_flag(shape: &WordShape) -> bool {
    let flag = [PatternToken::Char('-'), PatternToken::FlagLetters];
    shape.0.is_empty() || shape.0.iter().any(|atoms| patterns_intersect(&literal_pattern(atoms), &flag))
}

/// Returns whether an unknown word could be this word or the path that it names.
fn could_be_operand(shape: &WordShape, wanted: &str) -> bool {
    let literal: Vec<PatternToken> = wanted.chars().map(PatternToken::Char).collect();
    let rooted = |atoms: &[ShapeAtom]| match atoms.first() {
        Some(ShapeAtom::Char(letter)) => *letter == '/' || *letter == '.',
        Some(
            ShapeAtom::AnyChar | ShapeAtom::Star | ShapeAtom::Deep | ShapeAtom::Name | ShapeAtom::Digits,
        ) => false,
        Some(_) => true,
        None => false,
    };
    let path = wanted.starts_with('/');
    shape.0.is_empty()
        || shape
            .0
            .iter()
            .any(|atoms| (path && rooted(atoms)) || patterns_intersect(&literal_pattern(atoms), &literal))
}

/// Compares two words; paths also match with and without empty and dotted components.
fn is_same_operand(word: &str, wanted: &str) -> bool {
    word == wanted
        || (word.starts_with('/') && wanted.starts_with('/') && {
            super::operand::absolute_path("/", word) == super::operand::absolute_path("/", wanted)
        })
}

/// Returns whether a word is a flag. A single dash is a file.
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

/// Returns the first words of a command for a rule about it, or `None` if no rule should be proposed.
pub(super) fn proposable_words(command: &ShellCommand, with_flags: bool) -> Option<Vec<&str>> {
    if command.opaque_reason.is_some() {
        return None;
    }
    let (names, _) = split_command_name(&command.words)?;
    let first = *names.first()?;
    let alone =
        names.len() < 2 && (command_table::is_launcher(first) || command_table::name_arity(&names) > 1);
    let alone = alone || command_table::is_wrapper(first);
    let dangerous = command_table::dangerous_flags(&names).any(|danger| danger == "*");
    if first.contains('/') || alone || dangerous || command_table::is_never_proposed(&names) {
        return None;
    }
    if !with_flags {
        return Some(names);
    }
    let strange = |word: &ShellWord| is_unknown_flag(&names, word, &[]);
    let last = command.words.iter().rposition(strange).filter(|last| *last < MAX_PROPOSED_WORDS)?;
    command.words.iter().take(last + 1).map(ShellWord::as_known).collect()
}
