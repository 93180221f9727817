//! The grammar: lists and pipelines. Follows bash, not a standard.
//!
//! Here: what separates commands, and the text that is being read. Elsewhere: `simple`, `compound` (if, for, case …),
//! `redirect`, `word` and `expand` (what stands in words), `runs` (what a command does with its words).

use super::found::Found;
use super::redirect::Heredoc;
use super::{Command, DEPTH, NESTING, Word};

/// Why reading stopped.
#[derive(Debug)]
pub(super) struct Stop(pub(super) String);

pub(super) type Read<T> = Result<T, Stop>;

pub(super) fn stop<T>(reason: impl Into<String>) -> Read<T> {
    Err(Stop(reason.into()))
}

/// Words that end a list where a command could begin.
const CLOSERS: &[&str] = &["then", "do", "done", "fi", "elif", "else", "esac", "}"];

/// Words that mean something to the grammar where a command could begin.
pub(super) fn is_reserved_word(word: &str) -> bool {
    matches!(
        word,
        "if" | "then"
            | "elif"
            | "else"
            | "fi"
            | "case"
            | "esac"
            | "for"
            | "select"
            | "while"
            | "until"
            | "do"
            | "done"
            | "function"
            | "time"
            | "coproc"
            | "[["
            | "in"
            | "]]"
            | "{"
            | "}"
            | "!"
    )
}

/// One text being read. `end` is moved in for a part that is read by itself (backticks).
pub(super) struct Parser<'t, 'f> {
    pub(super) text: &'t str,
    pub(super) pos: usize,
    pub(super) end: usize,
    pub(super) found: &'f mut Found,
    pub(super) inside: Vec<String>,
    pub(super) nesting: usize,
    pub(super) heredocs: Vec<Heredoc>,
    /// Whether places in the text are places in the line that was given.
    pub(super) original: bool,
    /// What the command before the pipe prints, if that is known.
    pub(super) piped: Option<String>,
    /// How many commands and redirections there were before the pipeline, where the output of some comes through a pipe.
    pub(super) pipe: Option<(usize, usize)>,
    /// Commands and here-documents of the innermost substitution. Bash writes a substitution anew before it runs it, and
    /// loses separators behind a here-document.
    pub(super) here: Here,
}

/// What stands in a substitution.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Here {
    pub(super) substituted: bool,
    pub(super) commands: usize,
    pub(super) heredocs: usize,
}

/// Reads a whole text into what was found.
pub(super) fn read_into(text: &str, found: &mut Found) {
    let inside = Vec::new();
    read_text(text, found, inside, true);
}

/// Reads a text that another command would give to a shell.
pub(super) fn read_nested(text: &str, found: &mut Found, inside: Vec<String>) {
    if found.depth >= DEPTH {
        found.unsure(format!("shells stand in each other more than {DEPTH} deep"));
        return;
    }
    found.depth += 1;
    read_text(text, found, inside, false);
    found.depth -= 1;
}

fn read_text(text: &str, found: &mut Found, inside: Vec<String>, original: bool) {
    let mut parser = Parser {
        text,
        pos: 0,
        end: text.len(),
        found,
        inside,
        nesting: 0,
        heredocs: Vec::new(),
        original,
        piped: None,
        pipe: None,
        here: Here::default(),
    };
    let outcome = parser.whole();
    if let Err(Stop(reason)) = outcome {
        let place = parser.pos;
        parser.found.broken(reason);
        let rest = text.get(place..).unwrap_or_default().to_owned();
        parser.pieces(&rest);
    }
}

impl Parser<'_, '_> {
    /// The text to its very end.
    pub(super) fn whole(&mut self) -> Read<()> {
        self.list()?;
        if self.pos < self.end {
            return stop(format!("syntax: unexpected `{}`", self.around()));
        }
        if !self.heredocs.is_empty() {
            return stop("a here-document has no end");
        }
        Ok(())
    }

    /// After a fault: what still looks like commands, for rules that deny.
    fn pieces(&mut self, rest: &str) {
        let apart = |c: char| matches!(c, ';' | '&' | '|' | '\n' | '(' | ')' | '`' | '{' | '}' | '<' | '>');
        for piece in rest.split(apart) {
            let words: Vec<Word> = piece
                .split([' ', '\t', '\r'])
                .filter(|word| !word.is_empty())
                .map(|word| match word.trim_matches(['"', '\'']) {
                    word if word.contains(['$', '\\', '"', '\'', '*', '?', '[', '~']) => Word::unknown(word),
                    word => Word::Known(word.to_owned()),
                })
                .collect();
            if words.is_empty() {
                continue;
            }
            let inside = self.inside.clone();
            if !self.found.command(Command { words, inside, ..Command::default() }) {
                return;
            }
        }
    }

    pub(super) fn byte(&self, ahead: usize) -> Option<u8> {
        let at = self.pos + ahead;
        if at < self.end { self.text.as_bytes().get(at).copied() } else { None }
    }

    pub(super) fn starts(&self, with: &str) -> bool {
        self.text.get(self.pos..self.end).is_some_and(|rest| rest.starts_with(with))
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &str {
        self.text.get(from..to).unwrap_or_default()
    }

    pub(super) fn around(&self) -> String {
        self.text.get(self.pos..self.end).unwrap_or_default().chars().take(16).collect()
    }

    /// Something that stands inside something else, on this side of the bounds.
    pub(super) fn nested<T>(&mut self, what: &str, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.nesting >= NESTING {
            return stop(format!("parts of the line stand in each other more than {NESTING} deep"));
        }
        self.nesting += 1;
        let heredocs = std::mem::take(&mut self.heredocs);
        let piped = self.piped.take();
        let here = std::mem::replace(&mut self.here, Here { substituted: true, ..Here::default() });
        self.inside.push(what.to_owned());
        let got = read(self)?;
        self.inside.pop();
        if self.here.heredocs > 0 && self.here.commands > 1 {
            self.found.unsure("a substitution holds a here-document and other commands; bash may join them");
        }
        self.here = here;
        if !self.heredocs.is_empty() {
            return stop(format!("a here-document inside {what} has no end"));
        }
        self.heredocs = heredocs;
        self.piped = piped;
        self.nesting -= 1;
        Ok(got)
    }

    /// Blanks, continued lines and comments.
    pub(super) fn blanks(&mut self) {
        loop {
            match self.byte(0) {
                Some(b' ' | b'\t') => self.pos += 1,
                Some(b'\\') if self.byte(1) == Some(b'\n') => self.pos += 2,
                Some(b'#') => {
                    while self.byte(0).is_some_and(|b| b != b'\n') {
                        self.pos += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// A newline of the grammar: here the bodies of here-documents follow.
    pub(super) fn newline(&mut self) -> Read<()> {
        self.pos += 1;
        for heredoc in std::mem::take(&mut self.heredocs) {
            self.heredoc_body(&heredoc)?;
        }
        Ok(())
    }

    pub(super) fn newlines(&mut self) -> Read<()> {
        loop {
            self.blanks();
            if self.byte(0) != Some(b'\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// The reserved word that stands here, if one does: unquoted, whole.
    pub(super) fn reserved(&self) -> Option<&str> {
        let rest = self.text.get(self.pos..self.end)?;
        let word = rest.split([' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')']).next()?;
        is_reserved_word(word).then_some(word)
    }

    pub(super) fn is_reserved(&self, word: &str) -> bool {
        self.reserved() == Some(word)
    }

    /// Takes a reserved word that has to stand here.
    pub(super) fn expect(&mut self, word: &str) -> Read<()> {
        self.blanks();
        if !self.is_reserved(word) {
            return stop(format!("syntax: `{word}` is missing before `{}`", self.around()));
        }
        self.pos += word.len();
        Ok(())
    }

    /// Commands until something that closes: the end, `)`, `;;`, or a closing word.
    pub(super) fn list(&mut self) -> Read<()> {
        self.commands().map(|_| ())
    }

    /// Commands of which there has to be one.
    pub(super) fn some_list(&mut self) -> Read<()> {
        match self.commands()? {
            0 => stop(format!("syntax: a command is missing before `{}`", self.around())),
            _ => Ok(()),
        }
    }

    fn commands(&mut self) -> Read<usize> {
        let mut count = 0;
        loop {
            self.newlines()?;
            if self.closes() {
                return Ok(count);
            }
            count += 1;
            self.and_or()?;
            self.blanks();
            self.no_split_operator()?;
            match (self.byte(0), self.byte(1)) {
                (Some(b';'), Some(b';' | b'&')) => return Ok(count),
                (Some(b';' | b'&'), _) => self.pos += 1,
                (Some(b'\n'), _) => self.newline()?,
                _ => return Ok(count),
            }
        }
    }

    fn closes(&self) -> bool {
        match self.byte(0) {
            None | Some(b')') => true,
            Some(b';') => self.byte(1).is_some_and(|b| b == b';' || b == b'&'),
            _ => self.reserved().is_some_and(|word| CLOSERS.contains(&word)),
        }
    }

    /// `&\` at the end of a line joins with what follows; nobody writes that, so nothing is guessed.
    pub(super) fn no_split_operator(&self) -> Read<()> {
        let operator = self.byte(0).is_some_and(|b| b"&|;<>()".contains(&b));
        if operator && self.byte(1) == Some(b'\\') && self.byte(2) == Some(b'\n') {
            return stop("an operator is continued on the next line");
        }
        Ok(())
    }

    fn and_or(&mut self) -> Read<()> {
        loop {
            self.pipeline()?;
            self.blanks();
            self.no_split_operator()?;
            if !self.starts("&&") && !self.starts("||") {
                return Ok(());
            }
            self.pos += 2;
            self.newlines()?;
        }
    }

    pub(super) fn pipeline(&mut self) -> Read<()> {
        self.piped = None;
        let counts = self.found.counts();
        let outer = self.pipe.take();
        loop {
            self.blanks();
            match self.reserved() {
                Some("!") => self.pos += 1,
                Some("time") => self.time()?,
                _ => break,
            }
        }
        loop {
            self.command()?;
            self.blanks();
            self.no_split_operator()?;
            match (self.byte(0), self.byte(1)) {
                (Some(b'|'), Some(b'|')) => break,
                (Some(b'|'), Some(b'&')) => self.pos += 2,
                (Some(b'|'), _) => self.pos += 1,
                _ => break,
            }
            self.pipe = Some(counts);
            self.newlines()?;
        }
        self.piped = None;
        self.pipe = outer;
        Ok(())
    }

    /// `time` is a word of the grammar; it is listed because people look for it.
    fn time(&mut self) -> Read<()> {
        let start = self.pos;
        self.pos += "time".len();
        let mut words = vec![Word::Known("time".to_owned())];
        self.blanks();
        if self.starts("-p ") {
            self.pos += 2;
            words.push(Word::Known("-p".to_owned()));
            self.blanks();
        } else if self.byte(0) == Some(b'-') {
            return stop("`time` with options is read differently by different shells");
        }
        if self.here.substituted || self.byte(0) == Some(b'(') {
            self.found
                .unsure("`time` before a group or in a substitution is not read the same way everywhere");
        }
        self.begins(start);
        self.emit(Command { words, inside: self.inside.clone(), ..Command::default() })
    }

    /// Notes where a command begins, for the second reading.
    pub(super) fn begins(&mut self, at: usize) {
        if self.original {
            self.found.starts.push(at);
        }
    }

    pub(super) fn emit(&mut self, command: Command) -> Read<()> {
        if self.found.command(command) { Ok(()) } else { stop("too many commands") }
    }
}
