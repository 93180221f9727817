//! Lines: where in a text a key of a profile stands.
//!
//! Here: reading a text's words, as far as it takes to follow the braces of `profile { … }`. The machine itself forgets
//! where a key of a table came from. What is put together elsewhere has the line of the key that it is given to.
//! Invariant: it ends for every text and cuts none in the middle of a letter (`any_text_has_its_lines_looked_for`).

use std::collections::BTreeMap;

/// The word that a recipe begins with.
const PROFILE: &str = "profile";

/// The lines of the keys inside every `profile { … }`, by their dotted paths.
pub(crate) fn keys(text: &str) -> BTreeMap<String, u32> {
    let words = words(text);
    let mut lines = BTreeMap::new();
    // For each open bracket: the path of the table it opened, if it belongs to a profile, and its members so far.
    let mut open: Vec<Option<Inside>> = Vec::new();
    for (at, (word, _)) in words.iter().enumerate() {
        match word {
            Word::Sign('{') => {
                let path = match open.last_mut() {
                    Some(Some(inside)) => Some(inside.member()),
                    _ => is_profile(&words, at).then(String::new),
                };
                open.push(path.map(|path| Inside { path, key: None, count: 0 }));
            }
            Word::Sign('(' | '[') => open.push(None),
            Word::Sign('}' | ')' | ']') => drop(open.pop()),
            Word::Sign(',' | ';') => {
                if let Some(Some(inside)) = open.last_mut() {
                    inside.next();
                }
            }
            Word::Sign('=') => {
                let Some(Some(inside)) = open.last_mut() else { continue };
                if let Some((key, line)) = key_before(&words, at) {
                    let path = inside.below(&key);
                    lines.insert(path, line);
                    inside.key = Some(key);
                }
            }
            Word::Name(_) | Word::Text(_) | Word::Sign(_) => {}
        }
    }
    lines
}

/// An open table of a profile.
struct Inside {
    path: String,
    key: Option<String>,
    /// Members without a key.
    count: usize,
}

impl Inside {
    fn below(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The path of the member that begins here.
    fn member(&self) -> String {
        match &self.key {
            Some(key) => self.below(key),
            None => self.below(&(self.count + 1).to_string()),
        }
    }

    fn next(&mut self) {
        if self.key.take().is_none() {
            self.count += 1;
        }
    }
}

type Placed = (Word, u32);

#[derive(Debug, Clone, PartialEq)]
enum Word {
    Name(String),
    Text(String),
    Sign(char),
}

/// `profile {` or `profile({`.
fn is_profile(words: &[Placed], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|at| words.get(at)).map(|(word, _)| word);
    let named = |word: Option<&Word>| matches!(word, Some(Word::Name(name)) if name == PROFILE);
    named(before(1)) || before(1) == Some(&Word::Sign('(')) && named(before(2))
}

/// `key` or `["key"]` before an `=`, at the beginning of a member.
fn key_before(words: &[Placed], at: usize) -> Option<(String, u32)> {
    let before = |back: usize| at.checked_sub(back).and_then(|at| words.get(at));
    let begins = |word: Option<&Placed>| matches!(word, Some((Word::Sign('{' | ',' | ';'), _)));
    match before(1)? {
        (Word::Name(key), line) if begins(before(2)) => Some((key.clone(), *line)),
        (Word::Sign(']'), _) => match (before(2)?, before(3)?) {
            ((Word::Text(key), line), (Word::Sign('['), _)) if begins(before(4)) => {
                Some((key.clone(), *line))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The words of a text: names, texts and signs. Numbers are names here.
fn words(text: &str) -> Vec<Placed> {
    let mut reader = Reader { rest: text.chars().collect(), at: 0, line: 1 };
    let mut words = Vec::new();
    while let Some(c) = reader.peek(0) {
        let line = reader.line;
        if c.is_whitespace() {
            reader.skip(1);
        } else if c == '-' && reader.peek(1) == Some('-') {
            reader.skip(2);
            if reader.long_bracket().is_none() {
                reader.until(|c| c == '\n');
            }
        } else if c == '"' || c == '\'' || c == '`' {
            words.push((Word::Text(reader.quoted(c)), line));
        } else if c.is_alphanumeric() || c == '_' {
            words.push((Word::Name(reader.name()), line));
        } else if let Some(long) = reader.long_bracket() {
            words.push((Word::Text(long), line));
        } else if "=~<>".contains(c) && reader.peek(1) == Some('=') {
            reader.skip(2);
            words.push((Word::Sign('~'), line));
        } else {
            reader.skip(1);
            words.push((Word::Sign(c), line));
        }
    }
    words
}

struct Reader {
    rest: Vec<char>,
    at: usize,
    line: u32,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            if self.peek(0) == Some('\n') {
                self.line += 1;
            }
            self.at += 1;
        }
    }

    fn until(&mut self, end: impl Fn(char) -> bool) -> String {
        let mut out = String::new();
        while let Some(c) = self.peek(0).filter(|c| !end(*c)) {
            out.push(c);
            self.skip(1);
        }
        out
    }

    fn name(&mut self) -> String {
        self.until(|c| !c.is_alphanumeric() && c != '_')
    }

    fn quoted(&mut self, quote: char) -> String {
        self.skip(1);
        let mut out = String::new();
        while let Some(c) = self.peek(0) {
            self.skip(1);
            match c {
                '\\' => {
                    out.extend(self.peek(0));
                    self.skip(1);
                }
                c if c == quote || (c == '\n' && quote != '`') => break,
                c => out.push(c),
            }
        }
        out
    }

    /// `[[ … ]]` or `[=[ … ]=]`.
    fn long_bracket(&mut self) -> Option<String> {
        if self.peek(0) != Some('[') {
            return None;
        }
        let level = (1..).take_while(|ahead| self.peek(*ahead) == Some('=')).count();
        if self.peek(level + 1) != Some('[') {
            return None;
        }
        self.skip(level + 2);
        let end: Vec<char> =
            std::iter::once(']').chain(std::iter::repeat_n('=', level)).chain([']']).collect();
        let mut out = String::new();
        while let Some(c) = self.peek(0) {
            if self.rest.get(self.at..).is_some_and(|rest| rest.starts_with(&end)) {
                self.skip(end.len());
                break;
            }
            out.push(c);
            self.skip(1);
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_lines_on_which_they_stand() {
        let text = "-- a = 1 --[[ no ]]\nlocal profile = require('minke.profile')\n--[==[ profile {\n x = 1 } ]==]\n\
                    return profile {\n slug = \"a\",\n worker = {\n  [\"max_turns\"] = f{ 1, a == b, q = 2 },\n  \
                    instruction = [[\nlong = 1,\n]], },\n permissions = { rule = {\n {action = 'deny'},\n {action = \
                    'ask'} } },\n}";
        let lines = keys(text);
        let found: Vec<(&str, u32)> = lines.iter().map(|(key, line)| (key.as_str(), *line)).collect();
        let wanted = [
            ("permissions", 12),
            ("permissions.rule", 12),
            ("permissions.rule.1.action", 13),
            ("permissions.rule.2.action", 14),
            ("slug", 6),
            ("worker", 7),
            ("worker.instruction", 9),
            ("worker.max_turns", 8),
            ("worker.max_turns.q", 8),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn any_text_has_its_lines_looked_for() {
        let hostile = [
            "",
            "\\",
            "'\\",
            "[",
            "[=",
            "[[",
            "profile{",
            "profile{}}}}",
            "--",
            "--[[",
            "`{`",
            "ä='ö",
            "[==[x",
        ];
        for text in hostile {
            let doubled = format!("profile {{ {text}\n{text} = 1, x = {{ {text} }} }}");
            drop((keys(text), keys(&doubled)));
        }
        drop(keys(&"{".repeat(60_000)));
    }
}
