//! Key lines: finds the line of each key of a profile.
//!
//! Here: a tokenizer that follows the braces of `profile { … }`, because the machine does not record where a
//! table key was set. A value built elsewhere gets the line of the key that it is assigned to. Invariant:
//! terminates for every text and never splits a character (`any_text_has_its_lines_looked_for`).

use std::collections::BTreeMap;

/// The identifier before the table of a recipe.
const PROFILE_KEYWORD: &str = "profile";

/// Returns the lines of the keys inside every `profile { … }` by dotted path.
pub(crate) fn key_lines(text: &str) -> BTreeMap<String, u32> {
    let tokens = tokenize(text);
    let mut lines = BTreeMap::new();
    // For each open bracket: the path of its table if it belongs to a profile, and the members so far.
    let mut open: Vec<Option<OpenTable>> = Vec::new();
    for (at, (word, _)) in tokens.iter().enumerate() {
        match word {
            LuaToken::Symbol('{') => {
                let path = match open.last_mut() {
                    Some(Some(inside)) => Some(inside.member_path()),
                    _ => is_profile_call(&tokens, at).then(String::new),
                };
                open.push(path.map(|path| OpenTable { path, key: None, positional_count: 0 }));
            }
            LuaToken::Symbol('(' | '[') => open.push(None),
            LuaToken::Symbol('}' | ')' | ']') => drop(open.pop()),
            LuaToken::Symbol(',' | ';') => {
                if let Some(Some(inside)) = open.last_mut() {
                    inside.finish_member();
                }
            }
            LuaToken::Symbol('=') => {
                let Some(Some(inside)) = open.last_mut() else { continue };
                if let Some((key, line)) = key_before(&tokens, at) {
                    let path = inside.child_path(&key);
                    lines.insert(path, line);
                    inside.key = Some(key);
                }
            }
            LuaToken::Name(_) | LuaToken::Text(_) | LuaToken::Symbol(_) => {}
        }
    }
    lines
}

/// An open table of a profile.
struct OpenTable {
    path: String,
    key: Option<String>,
    /// Number of members without a key.
    positional_count: usize,
}

impl OpenTable {
    fn child_path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns the path of the member that starts here.
    fn member_path(&self) -> String {
        match &self.key {
            Some(key) => self.child_path(key),
            None => self.child_path(&(self.positional_count + 1).to_string()),
        }
    }

    fn finish_member(&mut self) {
        if self.key.take().is_none() {
            self.positional_count += 1;
        }
    }
}

type TokenAtLine = (LuaToken, u32);

#[derive(Debug, Clone, PartialEq)]
enum LuaToken {
    Name(String),
    Text(String),
    Symbol(char),
}

/// Matches `profile {` or `profile({`.
fn is_profile_call(tokens: &[TokenAtLine], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at)).map(|(word, _)| word);
    let named =
        |word: Option<&LuaToken>| matches!(word, Some(LuaToken::Name(name)) if name == PROFILE_KEYWORD);
    named(before(1)) || before(1) == Some(&LuaToken::Symbol('(')) && named(before(2))
}

/// Matches `key` or `["key"]` before an `=` at the start of a member.
fn key_before(tokens: &[TokenAtLine], at: usize) -> Option<(String, u32)> {
    let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
    let begins = |word: Option<&TokenAtLine>| matches!(word, Some((LuaToken::Symbol('{' | ',' | ';'), _)));
    match before(1)? {
        (LuaToken::Name(key), line) if begins(before(2)) => Some((key.clone(), *line)),
        (LuaToken::Symbol(']'), _) => match (before(2)?, before(3)?) {
            ((LuaToken::Text(key), line), (LuaToken::Symbol('['), _)) if begins(before(4)) => {
                Some((key.clone(), *line))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Splits a text into names, strings and symbols. Numbers count as names.
fn tokenize(text: &str) -> Vec<TokenAtLine> {
    let mut reader = LuaTokenizer { rest: text.chars().collect(), at: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(c) = reader.peek_char(0) {
        let line = reader.line;
        if c.is_whitespace() {
            reader.skip_chars(1);
        } else if c == '-' && reader.peek_char(1) == Some('-') {
            reader.skip_chars(2);
            if reader.take_long_bracket().is_none() {
                reader.take_until(|c| c == '\n');
            }
        } else if c == '"' || c == '\'' || c == '`' {
            tokens.push((LuaToken::Text(reader.take_quoted(c)), line));
        } else if c.is_alphanumeric() || c == '_' {
            tokens.push((LuaToken::Name(reader.take_name()), line));
        } else if let Some(long) = reader.take_long_bracket() {
            tokens.push((LuaToken::Text(long), line));
        } else if "=~<>".contains(c) && reader.peek_char(1) == Some('=') {
            reader.skip_chars(2);
            tokens.push((LuaToken::Symbol('~'), line));
        } else {
            reader.skip_chars(1);
            tokens.push((LuaToken::Symbol(c), line));
        }
    }
    tokens
}

struct LuaTokenizer {
    rest: Vec<char>,
    at: usize,
    line: u32,
}

impl LuaTokenizer {
    fn peek_char(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn skip_chars(&mut self, count: usize) {
        for _ in 0..count {
            if self.peek_char(0) == Some('\n') {
                self.line += 1;
            }
            self.at += 1;
        }
    }

    fn take_until(&mut self, end: impl Fn(char) -> bool) -> String {
        let mut out = String::new();
        while let Some(c) = self.peek_char(0).filter(|c| !end(*c)) {
            out.push(c);
            self.skip_chars(1);
        }
        out
    }

    fn take_name(&mut self) -> String {
        self.take_until(|c| !c.is_alphanumeric() && c != '_')
    }

    fn take_quoted(&mut self, quote: char) -> String {
        self.skip_chars(1);
        let mut out = String::new();
        while let Some(c) = self.peek_char(0) {
            self.skip_chars(1);
            match c {
                '\\' => {
                    out.extend(self.peek_char(0));
                    self.skip_chars(1);
                }
                c if c == quote || (c == '\n' && quote != '`') => break,
                c => out.push(c),
            }
        }
        out
    }

    /// Parses `[[ … ]]` or `[=[ … ]=]`.
    fn take_long_bracket(&mut self) -> Option<String> {
        if self.peek_char(0) != Some('[') {
            return None;
        }
        let level = (1..).take_while(|ahead| self.peek_char(*ahead) == Some('=')).count();
        if self.peek_char(level + 1) != Some('[') {
            return None;
        }
        self.skip_chars(level + 2);
        let end: Vec<char> =
            std::iter::once(']').chain(std::iter::repeat_n('=', level)).chain([']']).collect();
        let mut out = String::new();
        while let Some(c) = self.peek_char(0) {
            if self.rest.get(self.at..).is_some_and(|rest| rest.starts_with(&end)) {
                self.skip_chars(end.len());
                break;
            }
            out.push(c);
            self.skip_chars(1);
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
        let lines = key_lines(text);
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
            drop((key_lines(text), key_lines(&doubled)));
        }
        drop(key_lines(&"{".repeat(60_000)));
    }
}
