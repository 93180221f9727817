//! Words: quotes, escapes and expansions. A word is known if bash would pass exactly one word with a certain
//! text.

use super::super::ShellWord;
use super::super::display::is_foreign_space;
use super::super::parse::{ParseResult, ShellParser, parse_error};
use super::super::shape::{UnknownPart, WordPiece, WordShape};
use super::super::words::brace;

/// The context of a word, which determines how it is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shell) enum WordMode {
    /// An argument: globs, braces and `~` are expanded.
    Plain,
    /// A position where `name=value` assigns.
    MayAssign,
    /// The value of an assignment, the text of `<<<`, the word of `case`: no globs, no braces.
    Value,
}

/// A parsed word.
#[derive(Debug)]
pub(in crate::shell) struct WordToken {
    pub(in crate::shell) start: usize,
    pub(in crate::shell) known: Option<String>,
    pub(in crate::shell) raw: String,
    /// The word has no quotes and no expansions.
    pub(in crate::shell) plain: bool,
    pub(in crate::shell) assigned: Option<(String, ShellWord)>,
    /// The words that a brace expansion produces instead.
    pub(in crate::shell) brace_words: Option<Vec<String>>,
    /// The possible values, if the word is unknown.
    pub(in crate::shell) shape: Option<WordShape>,
}

impl WordToken {
    pub(in crate::shell) fn into_word(self) -> ShellWord {
        match self.known {
            Some(known) => ShellWord::Known(known),
            None => {
                ShellWord::Unknown { raw: self.raw, shape: self.shape.unwrap_or_else(WordShape::any_text) }
            }
        }
    }

    /// Returns the words after brace expansion.
    pub(in crate::shell) fn into_words(mut self) -> Vec<ShellWord> {
        match self.brace_words.take() {
            Some(several) => several.into_iter().map(ShellWord::Known).collect(),
            None => vec![self.into_word()],
        }
    }
}

/// Builds the text of a word.
#[derive(Debug)]
pub(in crate::shell) struct WordBuilder {
    /// Each character, and whether it is quoted.
    pub(in crate::shell) text: Vec<(char, bool)>,
    pub(in crate::shell) known: bool,
    pub(in crate::shell) plain: bool,
    /// The word contains an unquoted `{`.
    has_braces: bool,
    /// The word contains an unquoted glob character.
    has_globs: bool,
    /// Unknown parts: the position of the following character, the part, and whether it is quoted.
    unknown_parts: Vec<(usize, UnknownPart, bool)>,
}

impl WordBuilder {
    pub(in crate::shell) fn new() -> WordBuilder {
        WordBuilder {
            text: Vec::new(),
            known: true,
            plain: true,
            has_braces: false,
            has_globs: false,
            unknown_parts: Vec::new(),
        }
    }

    pub(in crate::shell) fn push_quoted(&mut self, text: &str) {
        self.plain = false;
        self.text.extend(text.chars().map(|c| (c, true)));
    }

    /// Adds an unknown part at the current position.
    pub(in crate::shell) fn push_unknown(&mut self, hole: UnknownPart, quoted: bool) {
        self.known = false;
        self.plain = false;
        self.unknown_parts.push((self.text.len(), hole, quoted));
    }

    /// Returns the characters with the unknown parts between them.
    fn word_pieces(&self) -> Vec<WordPiece> {
        let mut holes = self.unknown_parts.iter().peekable();
        let mut pieces = Vec::with_capacity(self.text.len() + self.unknown_parts.len());
        for at in 0..=self.text.len() {
            while let Some((_, hole, quoted)) = holes.next_if(|(place, ..)| *place == at) {
                pieces.push(WordPiece::Unknown(hole.clone(), *quoted));
            }
            pieces.extend(self.text.get(at).map(|(letter, quoted)| WordPiece::Char(*letter, *quoted)));
        }
        pieces
    }
}

impl ShellParser<'_, '_> {
    /// Parses the next word, if there is one.
    pub(in crate::shell) fn parse_word(&mut self, mode: WordMode) -> ParseResult<Option<WordToken>> {
        self.cursor.skip_blanks();
        let start = self.cursor.pos;
        if mode == WordMode::MayAssign
            && let Some(token) = self.parse_assignment()?
        {
            return Ok(Some(token));
        }
        let mut spelling = WordBuilder::new();
        while let Some(byte) = self.cursor.peek_byte(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                b'<' | b'>' => {
                    if self.cursor.peek_byte(1) != Some(b'(') {
                        break;
                    }
                    let what = if byte == b'<' { "<( )" } else { ">( )" };
                    self.cursor.pos += 2;
                    self.parse_substitution(what)?;
                    spelling.push_unknown(UnknownPart::Pipe, true);
                }
                _ => self.parse_piece(byte, &mut spelling)?,
            }
        }
        if self.cursor.pos == start {
            return Ok(None);
        }
        let redirects = self.cursor.peek_byte(0).is_some_and(|b| b == b'<' || b == b'>');
        if redirects && self.cursor.slice(start, self.cursor.pos).contains("\\\n") {
            return parse_error("a possible descriptor of a redirection is continued on the next line");
        }
        Ok(Some(self.finish_token(start, spelling, mode)))
    }

    fn finish_token(&mut self, start: usize, spelling: WordBuilder, mode: WordMode) -> WordToken {
        let raw = self.cursor.slice(start, self.cursor.pos).to_owned();
        let mut known = spelling.known;
        let expands = mode != WordMode::Value;
        if expands && spelling.has_globs && raw != "[" && has_glob(&spelling.text) {
            known = false;
        }
        let mut brace_words = None;
        if expands && spelling.has_braces && brace::may_expand(&spelling.text) {
            brace_words = if known { brace::expand_plain(&spelling.text) } else { None };
            known = false;
        }
        let foreign = |(c, quoted): &(char, bool)| !quoted && is_foreign_space(*c);
        if spelling.text.iter().any(foreign) {
            self.findings.mark_uncertain("an unquoted character looks like a space but is not one");
        }
        let shape = (!known && brace_words.is_none())
            .then(|| WordShape::from_pieces(&spelling.word_pieces(), expands));
        let known = known.then(|| spelling.text.iter().map(|(c, _)| *c).collect());
        WordToken { start, known, raw, plain: spelling.plain, assigned: None, brace_words, shape }
    }

    /// Parses one character or quoted part of a word.
    pub(in crate::shell) fn parse_piece(&mut self, byte: u8, spelling: &mut WordBuilder) -> ParseResult<()> {
        match byte {
            b'\\' => match self.cursor.peek_char(1) {
                Some('\n') => self.cursor.pos += 2,
                Some(c) => {
                    self.cursor.pos += 1 + c.len_utf8();
                    spelling.plain = false;
                    spelling.text.push((c, true));
                }
                None => return parse_error("the line ends with a backslash"),
            },
            b'\'' => {
                let text = self.parse_single_quoted()?;
                spelling.push_quoted(&text);
            }
            b'"' => {
                self.cursor.pos += 1;
                self.parse_double_quoted(spelling)?;
            }
            b'$' => self.parse_dollar(spelling, false)?,
            b'`' => {
                let printed = self.parse_backticks(false)?;
                spelling.push_unknown(UnknownPart::Output(printed), false);
            }
            _ => {
                let Some(c) = self.cursor.peek_char(0) else {
                    return parse_error("the text ends inside a character");
                };
                self.cursor.pos += c.len_utf8();
                match c {
                    '*' | '?' | '[' => spelling.has_globs = true,
                    '{' => spelling.has_braces = true,
                    '~' if is_tilde_position(&spelling.text) => {
                        spelling.push_unknown(UnknownPart::Home, false);
                        return Ok(());
                    }
                    _ => {}
                }
                spelling.text.push((c, false));
            }
        }
        Ok(())
    }

    pub(in crate::shell) fn parse_single_quoted(&mut self) -> ParseResult<String> {
        let rest = self.cursor.text.get(self.cursor.pos + 1..self.cursor.end).unwrap_or_default();
        let Some(length) = rest.find('\'') else { return parse_error("a single quote is not closed") };
        let text = rest.get(..length).unwrap_or_default().to_owned();
        self.cursor.pos += length + 2;
        Ok(text)
    }

    /// Parses the text after `"` up to the closing one.
    pub(in crate::shell) fn parse_double_quoted(&mut self, spelling: &mut WordBuilder) -> ParseResult<()> {
        spelling.plain = false;
        loop {
            match self.cursor.peek_byte(0) {
                None => return parse_error("a double quote is not closed"),
                Some(b'"') => {
                    self.cursor.pos += 1;
                    return Ok(());
                }
                Some(byte) => self.parse_in_double(byte, spelling)?,
            }
        }
    }

    /// Parses one character or expansion between double quotes or in a here-document.
    fn parse_in_double(&mut self, byte: u8, spelling: &mut WordBuilder) -> ParseResult<()> {
        match byte {
            b'\\' => match self.cursor.peek_char(1) {
                Some('\n') => self.cursor.pos += 2,
                Some(c @ ('$' | '`' | '"' | '\\')) => {
                    self.cursor.pos += 2;
                    spelling.text.push((c, true));
                }
                _ => {
                    self.cursor.pos += 1;
                    spelling.text.push(('\\', true));
                }
            },
            b'$' => self.parse_dollar(spelling, true)?,
            b'`' => {
                let printed = self.parse_backticks(true)?;
                spelling.push_unknown(UnknownPart::Output(printed), true);
            }
            _ => {
                let Some(c) = self.cursor.peek_char(0) else {
                    return parse_error("the text ends inside a character");
                };
                self.cursor.pos += c.len_utf8();
                spelling.text.push((c, true));
            }
        }
        Ok(())
    }

    /// Parses the expanded body of a here-document up to `end`.
    pub(in crate::shell) fn parse_heredoc_text(&mut self) -> ParseResult<()> {
        let mut spelling = WordBuilder::new();
        while let Some(byte) = self.cursor.peek_byte(0) {
            self.parse_in_double(byte, &mut spelling)?;
            spelling.text.clear();
            spelling.unknown_parts.clear();
        }
        Ok(())
    }

    /// Parses the delimiter of a here-document; returns it and whether any of it is quoted.
    pub(in crate::shell) fn parse_delimiter(&mut self) -> ParseResult<Option<(String, bool)>> {
        let start = self.cursor.pos;
        let mut spelling = WordBuilder::new();
        while let Some(byte) = self.cursor.peek_byte(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'$' | b'`' => {
                    return parse_error("the delimiter of a here-document contains `$` or a backtick");
                }
                b'"' if self
                    .cursor
                    .slice(self.cursor.pos, self.cursor.end)
                    .chars()
                    .skip(1)
                    .take_while(|c| *c != '"')
                    .any(|c| "$`\\".contains(c)) =>
                {
                    return parse_error("the delimiter of a here-document has unusual quotes");
                }
                _ => self.parse_piece(byte, &mut spelling)?,
            }
        }
        let text: String = spelling.text.iter().map(|(c, _)| *c).collect();
        if text.contains('\n') {
            return parse_error("the delimiter of a here-document contains a newline");
        }
        let quoted = self.cursor.slice(start, self.cursor.pos).contains(['\'', '"', '\\']);
        Ok((self.cursor.pos > start).then_some((text, quoted)))
    }

    /// Parses `name=value`, `name+=value`, `name[i]=value` or `name=( … )`, if there is one.
    fn parse_assignment(&mut self) -> ParseResult<Option<WordToken>> {
        let start = self.cursor.pos;
        while self.cursor.peek_byte(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.cursor.pos += 1;
        }
        let name = self.cursor.slice(start, self.cursor.pos).to_owned();
        self.reject_split_assignment()?;
        let named = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
        if !named || !self.parse_subscript(&name)? {
            self.cursor.pos = start;
            return Ok(None);
        }
        let operator = if self.cursor.starts_with("+=") {
            2
        } else {
            usize::from(self.cursor.peek_byte(0) == Some(b'='))
        };
        if operator == 0 {
            self.cursor.pos = start;
            return Ok(None);
        }
        self.cursor.pos += operator;
        let value_start = self.cursor.pos;
        let value = if self.cursor.peek_byte(0) == Some(b'(') {
            self.parse_array()?;
            WordToken {
                start: value_start,
                known: None,
                raw: String::new(),
                plain: false,
                assigned: None,
                brace_words: None,
                shape: None,
            }
        } else {
            let mut spelling = WordBuilder::new();
            while let Some(byte) = self.cursor.peek_byte(0) {
                match byte {
                    b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                    b'<' | b'>' if self.cursor.peek_byte(1) != Some(b'(') => break,
                    b'<' | b'>' => {
                        self.cursor.pos += 2;
                        self.parse_substitution("<( )")?;
                        spelling.push_unknown(UnknownPart::Pipe, true);
                    }
                    _ => self.parse_piece(byte, &mut spelling)?,
                }
            }
            self.finish_token(value_start, spelling, WordMode::Value)
        };
        let appends = operator == 2;
        let raw = self.cursor.slice(start, self.cursor.pos).to_owned();
        let left = self.cursor.slice(start, value_start).to_owned();
        let known = value.known.as_ref().map(|value| format!("{left}{value}"));
        let value = match value.known {
            Some(value) if !appends => ShellWord::Known(value),
            _ => ShellWord::Unknown {
                raw: self.cursor.slice(value_start, self.cursor.pos).to_owned(),
                shape: value.shape.filter(|_| !appends).unwrap_or_else(WordShape::any_text),
            },
        };
        let assigned = Some((name, value));
        Ok(Some(WordToken { start, known, raw, plain: false, assigned, brace_words: None, shape: None }))
    }

    /// Rejects an assignment whose name continues on the next line.
    fn reject_split_assignment(&self) -> ParseResult<()> {
        let rest = self.cursor.slice(self.cursor.pos, self.cursor.end);
        if !rest.starts_with("\\\n") {
            return Ok(());
        }
        let joined = rest.replace("\\\n", "");
        let behind = joined.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if behind.starts_with(['=', '[']) || behind.starts_with("+=") {
            return parse_error("an assignment is continued on the next line");
        }
        Ok(())
    }

    /// Skips `[i]`; returns false if it is not the subscript of an assignment.
    fn parse_subscript(&mut self, name: &str) -> ParseResult<bool> {
        if self.cursor.peek_byte(0) != Some(b'[') {
            return Ok(true);
        }
        let rest = self.cursor.slice(self.cursor.pos + 1, self.cursor.end);
        let inner: String = rest.chars().take_while(|c| *c != ']').collect();
        let simple = |c: char| c.is_ascii_alphanumeric() || "_$+-*/@".contains(c);
        if !inner.chars().all(simple) || inner.len() + 1 > rest.len() {
            self.findings
                .mark_uncertain(format!("`{name}[` may be the subscript of an array, which bash evaluates"));
            return Ok(false);
        }
        self.note_evaluated_names(&inner);
        self.cursor.pos += inner.len() + 2;
        Ok(true)
    }

    /// Parses the `( … )` of an array.
    fn parse_array(&mut self) -> ParseResult<()> {
        self.cursor.pos += 1;
        loop {
            self.skip_newlines()?;
            if self.cursor.peek_byte(0) == Some(b')') {
                self.cursor.pos += 1;
                if self.cursor.peek_byte(0).is_some_and(|b| !b" \t\n;&|<>()".contains(&b)) {
                    return parse_error("text directly follows an array");
                }
                return Ok(());
            }
            if self.cursor.peek_byte(0) == Some(b'[') {
                self.findings.mark_uncertain("an array has subscripts, which bash evaluates");
            }
            if self.parse_word(WordMode::Plain)?.is_none() {
                return parse_error("syntax: an array is not closed");
            }
        }
    }
}

/// Returns whether `~` at this position is a home directory: at the start, or after `=` or `:`.
fn is_tilde_position(before: &[(char, bool)]) -> bool {
    match before.last() {
        None => true,
        Some((c, quoted)) => !quoted && (*c == '=' || *c == ':'),
    }
}

/// Returns whether the word may be replaced by file names.
fn has_glob(text: &[(char, bool)]) -> bool {
    let mut open = false;
    for (c, quoted) in text {
        match c {
            _ if *quoted => {}
            '*' | '?' => return true,
            '[' => open = true,
            ']' if open => return true,
            _ => {}
        }
    }
    false
}
