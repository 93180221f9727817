//! The parser: lists and pipelines. Follows bash, not a standard.
//!
//! This module has command separators and the parser state. Other modules: `simple`, `compound` (if, for,
//! case …), `redirect`, `word` and `expand` (words), `effects` (the effects of commands).

use super::commands::redirect::Heredoc;
use super::cursor::TextCursor;
use super::findings::{FindingCounts, ShellFindings};
use super::{MAX_NESTING, MAX_SHELL_DEPTH, ShellCommand, ShellWord};

/// Why parsing stopped.
#[derive(Debug)]
pub(super) struct ShellParseError(pub(super) String);

pub(super) type ParseResult<T> = Result<T, ShellParseError>;

pub(super) fn parse_error<T>(reason: impl Into<String>) -> ParseResult<T> {
    Err(ShellParseError(reason.into()))
}

/// Reserved words that end a list where a command could begin.
const CLOSING_WORDS: &[&str] = &["then", "do", "done", "fi", "elif", "else", "esac", "}"];

/// Returns whether a word is reserved where a command could begin.
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

/// Parses one text.
pub(super) struct ShellParser<'t, 'f> {
    pub(super) cursor: TextCursor<'t>,
    pub(super) findings: &'f mut ShellFindings,
    pub(super) enclosing: Vec<String>,
    pub(super) nesting: usize,
    pub(super) heredocs: Vec<Heredoc>,
    /// Whether positions in the text are positions in the original line.
    pub(super) is_original: bool,
    /// The output of the command before the pipe, if it is known.
    pub(super) piped_text: Option<String>,
    /// The number of commands and redirections before the current pipeline, if its input comes through a
    /// pipe.
    pub(super) pipe_start: Option<FindingCounts>,
    /// The state of the innermost substitution. Bash reformats a substitution before it runs it, and loses
    /// separators after a here-document.
    pub(super) substitution: SubstitutionState,
}

/// The contents of a substitution.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct SubstitutionState {
    pub(super) is_inside: bool,
    pub(super) commands: usize,
    pub(super) heredocs: usize,
}

/// Parses a whole line and adds its commands to the findings.
pub(super) fn parse_into(text: &str, findings: &mut ShellFindings) {
    let inside = Vec::new();
    parse_text(text, findings, inside, true);
}

/// Parses a text that another command would pass to a shell.
pub(super) fn parse_nested(text: &str, found: &mut ShellFindings, inside: Vec<String>) {
    if found.depth >= MAX_SHELL_DEPTH {
        found.mark_uncertain(format!("shells are nested more than {MAX_SHELL_DEPTH} deep"));
        return;
    }
    found.depth += 1;
    parse_text(text, found, inside, false);
    found.depth -= 1;
}

fn parse_text(text: &str, findings: &mut ShellFindings, enclosing: Vec<String>, is_original: bool) {
    let mut parser = ShellParser {
        cursor: TextCursor::new(text),
        findings,
        enclosing,
        nesting: 0,
        heredocs: Vec::new(),
        is_original,
        piped_text: None,
        pipe_start: None,
        substitution: SubstitutionState::default(),
    };
    let outcome = parser.parse_whole();
    if let Err(ShellParseError(reason)) = outcome {
        let place = parser.cursor.pos;
        parser.findings.mark_malformed(reason);
        let rest = text.get(place..).unwrap_or_default().to_owned();
        parser.salvage_commands(&rest);
    }
}

impl ShellParser<'_, '_> {
    /// Parses the text to its end.
    pub(super) fn parse_whole(&mut self) -> ParseResult<()> {
        self.parse_list()?;
        if self.cursor.pos < self.cursor.end {
            return parse_error(format!("syntax: unexpected `{}`", self.cursor.excerpt()));
        }
        if !self.heredocs.is_empty() {
            return parse_error("a here-document is not terminated");
        }
        Ok(())
    }

    /// After a syntax error, adds everything that looks like a command, for rules that deny.
    fn salvage_commands(&mut self, rest: &str) {
        let apart = |c: char| matches!(c, ';' | '&' | '|' | '\n' | '(' | ')' | '`' | '{' | '}' | '<' | '>');
        for piece in rest.split(apart) {
            let words: Vec<ShellWord> = piece
                .split([' ', '\t', '\r'])
                .filter(|word| !word.is_empty())
                .map(|word| match word.trim_matches(['"', '\'']) {
                    word if word.contains(['$', '\\', '"', '\'', '*', '?', '[', '~']) => {
                        ShellWord::any_value(word)
                    }
                    word => ShellWord::Known(word.to_owned()),
                })
                .collect();
            if words.is_empty() {
                continue;
            }
            let enclosing = self.enclosing.clone();
            if !self.findings.add_command(ShellCommand { words, enclosing, ..ShellCommand::default() }) {
                return;
            }
        }
    }

    /// Parses a nested construct and limits the depth.
    pub(super) fn parse_inside<T>(
        &mut self,
        label: &str,
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        if self.nesting >= MAX_NESTING {
            return parse_error(format!("parts of the line are nested more than {MAX_NESTING} deep"));
        }
        self.nesting += 1;
        let heredocs = std::mem::take(&mut self.heredocs);
        let piped = self.piped_text.take();
        let outer_substitution = std::mem::replace(
            &mut self.substitution,
            SubstitutionState { is_inside: true, ..SubstitutionState::default() },
        );
        self.enclosing.push(label.to_owned());
        let value = read(self)?;
        self.enclosing.pop();
        if self.substitution.heredocs > 0 && self.substitution.commands > 1 {
            self.findings.mark_uncertain(
                "a substitution contains a here-document and other commands; bash may join them",
            );
        }
        self.substitution = outer_substitution;
        if !self.heredocs.is_empty() {
            return parse_error(format!("a here-document inside {label} is not terminated"));
        }
        self.heredocs = heredocs;
        self.piped_text = piped;
        self.nesting -= 1;
        Ok(value)
    }

    /// Parses a newline and the bodies of the here-documents that follow it.
    pub(super) fn parse_newline(&mut self) -> ParseResult<()> {
        self.cursor.pos += 1;
        for heredoc in std::mem::take(&mut self.heredocs) {
            self.parse_heredoc_body(&heredoc)?;
        }
        Ok(())
    }

    pub(super) fn skip_newlines(&mut self) -> ParseResult<()> {
        loop {
            self.cursor.skip_blanks();
            if self.cursor.peek_byte(0) != Some(b'\n') {
                return Ok(());
            }
            self.parse_newline()?;
        }
    }

    /// Skips a required reserved word.
    pub(super) fn expect_reserved(&mut self, word: &str) -> ParseResult<()> {
        self.cursor.skip_blanks();
        if !self.cursor.at_reserved_word(word) {
            return parse_error(format!("syntax: `{word}` is missing before `{}`", self.cursor.excerpt()));
        }
        self.cursor.pos += word.len();
        Ok(())
    }

    /// Parses commands up to a closing token: the end, `)`, `;;`, or a closing word.
    pub(super) fn parse_list(&mut self) -> ParseResult<()> {
        self.parse_commands().map(|_| ())
    }

    /// Parses a list of at least one command.
    pub(super) fn parse_nonempty_list(&mut self) -> ParseResult<()> {
        match self.parse_commands()? {
            0 => parse_error(format!("syntax: a command is missing before `{}`", self.cursor.excerpt())),
            _ => Ok(()),
        }
    }

    fn parse_commands(&mut self) -> ParseResult<usize> {
        let mut count = 0;
        loop {
            self.skip_newlines()?;
            if self.at_list_end() {
                return Ok(count);
            }
            count += 1;
            self.parse_and_or()?;
            self.cursor.skip_blanks();
            self.reject_split_operator()?;
            match (self.cursor.peek_byte(0), self.cursor.peek_byte(1)) {
                (Some(b';'), Some(b';' | b'&')) => return Ok(count),
                (Some(b';' | b'&'), _) => self.cursor.pos += 1,
                (Some(b'\n'), _) => self.parse_newline()?,
                _ => return Ok(count),
            }
        }
    }

    fn at_list_end(&self) -> bool {
        match self.cursor.peek_byte(0) {
            None | Some(b')') => true,
            Some(b';') => self.cursor.peek_byte(1).is_some_and(|b| b == b';' || b == b'&'),
            _ => self.cursor.reserved_word().is_some_and(|word| CLOSING_WORDS.contains(&word)),
        }
    }

    /// Rejects an operator before a continued line (`&\`), because it joins with the following text.
    pub(super) fn reject_split_operator(&self) -> ParseResult<()> {
        let operator = self.cursor.peek_byte(0).is_some_and(|b| b"&|;<>()".contains(&b));
        if operator && self.cursor.peek_byte(1) == Some(b'\\') && self.cursor.peek_byte(2) == Some(b'\n') {
            return parse_error("an operator is continued on the next line");
        }
        Ok(())
    }

    fn parse_and_or(&mut self) -> ParseResult<()> {
        loop {
            self.parse_pipeline()?;
            self.cursor.skip_blanks();
            self.reject_split_operator()?;
            if !self.cursor.starts_with("&&") && !self.cursor.starts_with("||") {
                return Ok(());
            }
            self.cursor.pos += 2;
            self.skip_newlines()?;
        }
    }

    pub(super) fn parse_pipeline(&mut self) -> ParseResult<()> {
        self.piped_text = None;
        let counts = self.findings.counts();
        let outer = self.pipe_start.take();
        loop {
            self.cursor.skip_blanks();
            match self.cursor.reserved_word() {
                Some("!") => self.cursor.pos += 1,
                Some("time") => self.parse_time()?,
                _ => break,
            }
        }
        loop {
            self.parse_command()?;
            self.cursor.skip_blanks();
            self.reject_split_operator()?;
            match (self.cursor.peek_byte(0), self.cursor.peek_byte(1)) {
                (Some(b'|'), Some(b'|')) => break,
                (Some(b'|'), Some(b'&')) => self.cursor.pos += 2,
                (Some(b'|'), _) => self.cursor.pos += 1,
                _ => break,
            }
            self.pipe_start = Some(counts);
            self.skip_newlines()?;
        }
        self.piped_text = None;
        self.pipe_start = outer;
        Ok(())
    }

    /// Parses `time`, which is a reserved word; it is listed because users expect to see it.
    fn parse_time(&mut self) -> ParseResult<()> {
        let start = self.cursor.pos;
        self.cursor.pos += "time".len();
        let mut words = vec![ShellWord::Known("time".to_owned())];
        self.cursor.skip_blanks();
        if self.cursor.starts_with("-p ") {
            self.cursor.pos += 2;
            words.push(ShellWord::Known("-p".to_owned()));
            self.cursor.skip_blanks();
        } else if self.cursor.peek_byte(0) == Some(b'-') {
            return parse_error("shells parse `time` with options differently");
        }
        if self.substitution.is_inside || self.cursor.peek_byte(0) == Some(b'(') {
            self.findings
                .mark_uncertain("shells parse `time` before a group or in a substitution differently");
        }
        self.note_command_start(start);
        self.emit_command(ShellCommand {
            words,
            enclosing: self.enclosing.clone(),
            ..ShellCommand::default()
        })
    }

    /// Records the position of a command for the comparison with tree-sitter.
    pub(super) fn note_command_start(&mut self, at: usize) {
        if self.is_original {
            self.findings.command_starts.push(at);
        }
    }

    pub(super) fn emit_command(&mut self, command: ShellCommand) -> ParseResult<()> {
        if self.findings.add_command(command) { Ok(()) } else { parse_error("too many commands") }
    }
}
