//! Words: quotes, escapes and what they hide. A word is known if bash would hand over exactly one word whose text is
//! certain.

use super::Word;
use super::brace;
use super::look::is_foreign_space;
use super::parse::{Parser, Read, stop};
use super::shape::{Hole, Piece, Shape};

/// Where a word stands, as far as that changes how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// An argument: globs, braces and `~` are expanded.
    Plain,
    /// Where `name=value` assigns.
    MayAssign,
    /// The value of an assignment, the text of `<<<`, the word of `case`: no globs, no braces.
    Value,
}

/// A word as it was read.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) start: usize,
    pub(super) known: Option<String>,
    pub(super) raw: String,
    /// No quotes and nothing that expands.
    pub(super) plain: bool,
    pub(super) assigned: Option<(String, Word)>,
    /// What braces make of it: other words in its place.
    pub(super) several: Option<Vec<String>>,
    /// What it can become, if it is not known.
    pub(super) shape: Option<Shape>,
}

impl Token {
    pub(super) fn into_word(self) -> Word {
        match self.known {
            Some(known) => Word::Known(known),
            None => Word::Unknown { raw: self.raw, shape: self.shape.unwrap_or_else(Shape::anything) },
        }
    }

    /// The words that stand in its place once braces are expanded.
    pub(super) fn into_words(mut self) -> Vec<Word> {
        match self.several.take() {
            Some(several) => several.into_iter().map(Word::Known).collect(),
            None => vec![self.into_word()],
        }
    }
}

/// The text of a word as it grows.
#[derive(Debug)]
pub(super) struct Spelling {
    /// Each character with whether it was quoted.
    pub(super) text: Vec<(char, bool)>,
    pub(super) known: bool,
    pub(super) plain: bool,
    /// An unquoted `{` was seen.
    braces: bool,
    /// An unquoted glob character was seen.
    globs: bool,
    /// What stands before a character, or at the end, and is not known; and whether it is quoted.
    holes: Vec<(usize, Hole, bool)>,
}

impl Spelling {
    pub(super) fn new() -> Spelling {
        Spelling {
            text: Vec::new(),
            known: true,
            plain: true,
            braces: false,
            globs: false,
            holes: Vec::new(),
        }
    }

    pub(super) fn quoted(&mut self, text: &str) {
        self.plain = false;
        self.text.extend(text.chars().map(|c| (c, true)));
    }

    /// Something that is not known stands here.
    pub(super) fn hole(&mut self, hole: Hole, quoted: bool) {
        self.known = false;
        self.plain = false;
        self.holes.push((self.text.len(), hole, quoted));
    }

    /// The characters and what stands between them.
    fn pieces(&self) -> Vec<Piece> {
        let mut holes = self.holes.iter().peekable();
        let mut pieces = Vec::with_capacity(self.text.len() + self.holes.len());
        for at in 0..=self.text.len() {
            while let Some((_, hole, quoted)) = holes.next_if(|(place, ..)| *place == at) {
                pieces.push(Piece::Hole(hole.clone(), *quoted));
            }
            pieces.extend(self.text.get(at).map(|(letter, quoted)| Piece::Char(*letter, *quoted)));
        }
        pieces
    }
}

impl Parser<'_, '_> {
    /// The next word, if one stands here.
    pub(super) fn word(&mut self, mode: Mode) -> Read<Option<Token>> {
        self.blanks();
        let start = self.pos;
        if mode == Mode::MayAssign
            && let Some(token) = self.assignment()?
        {
            return Ok(Some(token));
        }
        let mut spelling = Spelling::new();
        while let Some(byte) = self.byte(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                b'<' | b'>' => {
                    if self.byte(1) != Some(b'(') {
                        break;
                    }
                    let what = if byte == b'<' { "<( )" } else { ">( )" };
                    self.pos += 2;
                    self.substitution(what)?;
                    spelling.hole(Hole::Pipe, true);
                }
                _ => self.piece(byte, &mut spelling)?,
            }
        }
        if self.pos == start {
            return Ok(None);
        }
        let redirects = self.byte(0).is_some_and(|b| b == b'<' || b == b'>');
        if redirects && self.slice(start, self.pos).contains("\\\n") {
            return stop("what may be the descriptor of a redirection is continued on the next line");
        }
        Ok(Some(self.token(start, spelling, mode)))
    }

    fn token(&mut self, start: usize, spelling: Spelling, mode: Mode) -> Token {
        let raw = self.slice(start, self.pos).to_owned();
        let mut known = spelling.known;
        let expands = mode != Mode::Value;
        if expands && spelling.globs && raw != "[" && has_glob(&spelling.text) {
            known = false;
        }
        let mut several = None;
        if expands && spelling.braces && brace::expands(&spelling.text) {
            several = if known { brace::expanded(&spelling.text) } else { None };
            known = false;
        }
        let foreign = |(c, quoted): &(char, bool)| !quoted && is_foreign_space(*c);
        if spelling.text.iter().any(foreign) {
            self.found.unsure("a character outside quotes looks like a space and is none");
        }
        let shape = (!known && several.is_none()).then(|| Shape::of_pieces(&spelling.pieces(), expands));
        let known = known.then(|| spelling.text.iter().map(|(c, _)| *c).collect());
        Token { start, known, raw, plain: spelling.plain, assigned: None, several, shape }
    }

    /// One character or quoted part of a word.
    pub(super) fn piece(&mut self, byte: u8, spelling: &mut Spelling) -> Read<()> {
        match byte {
            b'\\' => match self.character(1) {
                Some('\n') => self.pos += 2,
                Some(c) => {
                    self.pos += 1 + c.len_utf8();
                    spelling.plain = false;
                    spelling.text.push((c, true));
                }
                None => return stop("the line ends with a backslash"),
            },
            b'\'' => {
                let text = self.single_quoted()?;
                spelling.quoted(&text);
            }
            b'"' => {
                self.pos += 1;
                self.double_quoted(spelling)?;
            }
            b'$' => self.dollar(spelling, false)?,
            b'`' => {
                let printed = self.backticks(false)?;
                spelling.hole(Hole::Output(printed), false);
            }
            _ => {
                let Some(c) = self.character(0) else { return stop("the text ends inside a character") };
                self.pos += c.len_utf8();
                match c {
                    '*' | '?' | '[' => spelling.globs = true,
                    '{' => spelling.braces = true,
                    '~' if tilde(&spelling.text) => {
                        spelling.hole(Hole::Home, false);
                        return Ok(());
                    }
                    _ => {}
                }
                spelling.text.push((c, false));
            }
        }
        Ok(())
    }

    pub(super) fn character(&self, ahead: usize) -> Option<char> {
        self.text.get(self.pos + ahead..self.end)?.chars().next()
    }

    pub(super) fn single_quoted(&mut self) -> Read<String> {
        let rest = self.text.get(self.pos + 1..self.end).unwrap_or_default();
        let Some(length) = rest.find('\'') else { return stop("a single quote is not closed") };
        let text = rest.get(..length).unwrap_or_default().to_owned();
        self.pos += length + 2;
        Ok(text)
    }

    /// What stands behind `"`, up to the closing one.
    pub(super) fn double_quoted(&mut self, spelling: &mut Spelling) -> Read<()> {
        spelling.plain = false;
        loop {
            match self.byte(0) {
                None => return stop("a double quote is not closed"),
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(());
                }
                Some(byte) => self.in_double(byte, spelling)?,
            }
        }
    }

    /// One character or expansion between double quotes, or of a here-document.
    fn in_double(&mut self, byte: u8, spelling: &mut Spelling) -> Read<()> {
        match byte {
            b'\\' => match self.character(1) {
                Some('\n') => self.pos += 2,
                Some(c @ ('$' | '`' | '"' | '\\')) => {
                    self.pos += 2;
                    spelling.text.push((c, true));
                }
                _ => {
                    self.pos += 1;
                    spelling.text.push(('\\', true));
                }
            },
            b'$' => self.dollar(spelling, true)?,
            b'`' => {
                let printed = self.backticks(true)?;
                spelling.hole(Hole::Output(printed), true);
            }
            _ => {
                let Some(c) = self.character(0) else { return stop("the text ends inside a character") };
                self.pos += c.len_utf8();
                spelling.text.push((c, true));
            }
        }
        Ok(())
    }

    /// The body of a here-document that is expanded, up to `end`.
    pub(super) fn heredoc_text(&mut self) -> Read<()> {
        let mut spelling = Spelling::new();
        while let Some(byte) = self.byte(0) {
            self.in_double(byte, &mut spelling)?;
            spelling.text.clear();
            spelling.holes.clear();
        }
        Ok(())
    }

    /// The delimiter of a here-document and whether any of it was quoted.
    pub(super) fn delimiter(&mut self) -> Read<Option<(String, bool)>> {
        let start = self.pos;
        let mut spelling = Spelling::new();
        while let Some(byte) = self.byte(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'$' | b'`' => return stop("the delimiter of a here-document holds `$` or a backtick"),
                b'"' if self
                    .slice(self.pos, self.end)
                    .chars()
                    .skip(1)
                    .take_while(|c| *c != '"')
                    .any(|c| "$`\\".contains(c)) =>
                {
                    return stop("the delimiter of a here-document is quoted in an odd way");
                }
                _ => self.piece(byte, &mut spelling)?,
            }
        }
        let text: String = spelling.text.iter().map(|(c, _)| *c).collect();
        if text.contains('\n') {
            return stop("the delimiter of a here-document spans lines");
        }
        let quoted = self.slice(start, self.pos).contains(['\'', '"', '\\']);
        Ok((self.pos > start).then_some((text, quoted)))
    }

    /// `name=value`, `name+=value`, `name[i]=value`, `name=( … )`, if one stands here.
    fn assignment(&mut self) -> Read<Option<Token>> {
        let start = self.pos;
        while self.byte(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.pos += 1;
        }
        let name = self.slice(start, self.pos).to_owned();
        self.no_split_assignment()?;
        let named = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
        if !named || !self.subscript(&name)? {
            self.pos = start;
            return Ok(None);
        }
        let operator = if self.starts("+=") { 2 } else { usize::from(self.byte(0) == Some(b'=')) };
        if operator == 0 {
            self.pos = start;
            return Ok(None);
        }
        self.pos += operator;
        let value_start = self.pos;
        let value = if self.byte(0) == Some(b'(') {
            self.array()?;
            Token {
                start: value_start,
                known: None,
                raw: String::new(),
                plain: false,
                assigned: None,
                several: None,
                shape: None,
            }
        } else {
            let mut spelling = Spelling::new();
            while let Some(byte) = self.byte(0) {
                match byte {
                    b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                    b'<' | b'>' if self.byte(1) != Some(b'(') => break,
                    b'<' | b'>' => {
                        self.pos += 2;
                        self.substitution("<( )")?;
                        spelling.hole(Hole::Pipe, true);
                    }
                    _ => self.piece(byte, &mut spelling)?,
                }
            }
            self.token(value_start, spelling, Mode::Value)
        };
        let appends = operator == 2;
        let raw = self.slice(start, self.pos).to_owned();
        let left = self.slice(start, value_start).to_owned();
        let known = value.known.as_ref().map(|value| format!("{left}{value}"));
        let value = match value.known {
            Some(value) if !appends => Word::Known(value),
            _ => Word::Unknown {
                raw: self.slice(value_start, self.pos).to_owned(),
                shape: value.shape.filter(|_| !appends).unwrap_or_else(Shape::anything),
            },
        };
        let assigned = Some((name, value));
        Ok(Some(Token { start, known, raw, plain: false, assigned, several: None, shape: None }))
    }

    /// A name that goes on behind a continued line and then assigns: nobody writes that.
    fn no_split_assignment(&self) -> Read<()> {
        let rest = self.slice(self.pos, self.end);
        if !rest.starts_with("\\\n") {
            return Ok(());
        }
        let joined = rest.replace("\\\n", "");
        let behind = joined.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if behind.starts_with(['=', '[']) || behind.starts_with("+=") {
            return stop("an assignment is continued on the next line");
        }
        Ok(())
    }

    /// Steps over `[i]`; false if this is no subscript of an assignment.
    fn subscript(&mut self, name: &str) -> Read<bool> {
        if self.byte(0) != Some(b'[') {
            return Ok(true);
        }
        let rest = self.slice(self.pos + 1, self.end);
        let inner: String = rest.chars().take_while(|c| *c != ']').collect();
        let simple = |c: char| c.is_ascii_alphanumeric() || "_$+-*/@".contains(c);
        if !inner.chars().all(simple) || inner.len() + 1 > rest.len() {
            self.found.unsure(format!("`{name}[` may be the subscript of an array, which bash evaluates"));
            return Ok(false);
        }
        self.evaluates(&inner);
        self.pos += inner.len() + 2;
        Ok(true)
    }

    /// `( … )` of an array.
    fn array(&mut self) -> Read<()> {
        self.pos += 1;
        loop {
            self.newlines()?;
            if self.byte(0) == Some(b')') {
                self.pos += 1;
                if self.byte(0).is_some_and(|b| !b" \t\n;&|<>()".contains(&b)) {
                    return stop("something is joined to an array");
                }
                return Ok(());
            }
            if self.byte(0) == Some(b'[') {
                self.found.unsure("an array is given with subscripts, which bash evaluates");
            }
            if self.word(Mode::Plain)?.is_none() {
                return stop("syntax: an array is not closed");
            }
        }
    }
}

/// Whether `~` here would be a home directory: at the beginning, or behind `=` or `:`.
fn tilde(before: &[(char, bool)]) -> bool {
    match before.last() {
        None => true,
        Some((c, quoted)) => !quoted && (*c == '=' || *c == ':'),
    }
}

/// Whether pathnames could be put in the word's place.
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
