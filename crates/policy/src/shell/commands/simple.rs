//! Simple commands: assignments, words and redirections.

use super::super::parse::{ParseResult, ShellParser, is_reserved_word, parse_error, parse_nested};
use super::super::words::word::{WordMode, WordToken};
use super::super::{ShellCommand, ShellWord, WordShape, commands::builtin, effects};

/// A simple command during parsing.
#[derive(Debug, Default)]
pub(in crate::shell) struct SimpleCommand {
    assignments: Vec<(String, ShellWord)>,
    words: Vec<WordToken>,
    /// The text of `<<<`, if present, and if known.
    pub(in crate::shell) herestring: Option<Option<String>>,
    is_redirected: bool,
    /// The number of redirections of its standard input.
    inputs: usize,
    /// Another descriptor gets input, or standard input is redirected in an unusual way.
    has_odd_input: bool,
}

impl SimpleCommand {
    fn is_declaration(&self) -> bool {
        self.words.first().and_then(|token| token.known.as_deref()).is_some_and(builtin::is_declaration)
    }

    /// Records a redirection that may set the input of a shell.
    pub(in crate::shell) fn note_redirect(&mut self, descriptor: &str, operator: &str) {
        let reads = operator.starts_with('<');
        match descriptor {
            "" | "0" if reads => self.inputs += 1,
            "0" => self.has_odd_input = true,
            _ => self.has_odd_input |= reads,
        }
    }

    /// Returns whether declared variables are exported.
    fn is_export(&self) -> bool {
        let mut words = self.words.iter().filter_map(|token| token.known.as_deref());
        words.next() == Some("export") || words.any(|word| word.starts_with('-') && word.contains('x'))
    }

    /// Returns whether a word would be the command name after an assignment or redirection.
    fn would_be_command_name(&self, token: &WordToken) -> bool {
        token.plain && self.words.is_empty() && (self.is_redirected || !self.assignments.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.assignments.is_empty() && !self.is_redirected
    }

    fn push(&mut self, mut token: WordToken, declares: bool) {
        match token.assigned.take() {
            Some(assigned) if self.words.is_empty() && !declares => self.assignments.push(assigned),
            assigned => {
                token.assigned = assigned;
                self.words.push(token);
            }
        }
    }

    fn all_assignments(&self) -> Vec<(String, ShellWord)> {
        let declared = self.words.iter().filter_map(|token| token.assigned.clone());
        self.assignments.iter().cloned().chain(declared).collect()
    }
}

impl ShellParser<'_, '_> {
    /// Parses a simple command: assignments, words, redirections in any order.
    pub(in crate::shell) fn parse_simple(&mut self) -> ParseResult<()> {
        let mut simple = SimpleCommand::default();
        let heredocs = self.heredocs.len();
        let depth = self.enclosing.len();
        match self.parse_words(&mut simple) {
            Ok(Some(function)) => self.parse_function(function),
            Ok(None) if simple.is_empty() => {
                parse_error(format!("syntax: a command is missing before `{}`", self.cursor.excerpt()))
            }
            Ok(None) => self.record_simple(simple, heredocs),
            Err(reason) => {
                // Add the words parsed so far, for rules that deny.
                self.enclosing.truncate(depth);
                let words: Vec<ShellWord> =
                    simple.words.into_iter().flat_map(WordToken::into_words).collect();
                if !words.is_empty() {
                    self.emit_command(ShellCommand {
                        words,
                        enclosing: self.enclosing.clone(),
                        ..ShellCommand::default()
                    })?;
                }
                Err(reason)
            }
        }
    }

    /// Parses the words of a simple command. Returns the name if it is a function definition.
    fn parse_words(&mut self, simple: &mut SimpleCommand) -> ParseResult<Option<WordToken>> {
        loop {
            self.cursor.skip_blanks();
            if self.parse_redirection(simple)? {
                simple.is_redirected = true;
                continue;
            }
            let declares = simple.is_declaration();
            let mode =
                if simple.words.is_empty() || declares { WordMode::MayAssign } else { WordMode::Plain };
            let Some(token) = self.parse_word(mode)? else { return Ok(None) };
            if simple.would_be_command_name(&token) && is_reserved_word(&token.raw) {
                // Bash reformats substitutions with redirections last, where the word would be reserved after
                // all.
                return parse_error(format!("`{}` follows an assignment or a redirection", token.raw));
            }
            if token.plain && simple.words.is_empty() && simple.assignments.is_empty() && self.at_function() {
                return Ok(Some(token));
            }
            simple.push(token, declares);
        }
    }

    /// Returns whether `()` follows, so that the word before it names a function.
    fn at_function(&mut self) -> bool {
        let place = self.cursor.pos;
        self.cursor.skip_blanks();
        let opens = self.cursor.peek_byte(0) == Some(b'(');
        if !opens {
            self.cursor.pos = place;
        }
        opens
    }

    /// Records a simple command and everything that it would run.
    fn record_simple(&mut self, simple: SimpleCommand, heredocs: usize) -> ParseResult<()> {
        for (name, value) in &simple.assignments {
            if simple.words.is_empty() {
                self.findings.assign_variable(name, value, false);
            }
        }
        for token in simple.words.iter().filter(|token| token.assigned.is_some()) {
            if let Some((name, value)) = &token.assigned {
                self.findings.assign_variable(name, value, simple.is_export());
            }
        }
        let printed = self.piped_text.take();
        let Some(first) = simple.words.first() else { return Ok(()) };
        self.note_command_start(first.start);
        self.findings.input = self.command_input(&simple, heredocs);
        let command = ShellCommand {
            assignments: simple.all_assignments(),
            words: simple.words.into_iter().flat_map(WordToken::into_words).collect(),
            enclosing: self.enclosing.clone(),
            opaque_reason: None,
        };
        self.piped_text = effects::plain_output(&command);
        let Some(shell) = effects::record_command(self.findings, command)? else { return Ok(()) };
        // A shell that reads its commands from standard input: find their source.
        if simple.has_odd_input || simple.inputs > 1 {
            self.findings.mark_uncertain("the input that a shell reads its commands from is ambiguous");
        }
        if let Some(text) = simple.herestring {
            self.parse_script(text.as_deref(), shell);
            return Ok(());
        }
        if self.heredocs.len() > heredocs {
            if let Some(heredoc) = self.heredocs.last_mut() {
                heredoc.script = Some(shell);
            }
            return Ok(());
        }
        if printed.is_some() {
            self.findings.mark_uncertain("a shell reads its commands from a pipe");
        } else if let Some(heredoc) = self.heredocs.last_mut() {
            heredoc.script = Some(shell);
            self.findings.mark_uncertain("a shell may read a here-document of another command");
            return Ok(());
        }
        self.parse_script(printed.as_deref(), shell);
        Ok(())
    }

    /// Returns the standard input of a command, as far as the line defines it.
    fn command_input(&self, simple: &SimpleCommand, heredocs: usize) -> Option<WordShape> {
        let reads = |token: &WordToken| token.known.as_deref().is_some_and(|word| word.ends_with("xargs"));
        if !simple.words.iter().any(reads) {
            return None;
        }
        if simple.has_odd_input || simple.inputs > 0 || self.heredocs.len() > heredocs {
            return simple.herestring.as_ref()?.as_deref().map(WordShape::from_words);
        }
        self.pipe_start.map(|pipe| self.output_since(pipe))
    }

    /// Parses the script that a shell reads from its standard input, if it is known.
    fn parse_script(&mut self, text: Option<&str>, inside: Vec<String>) {
        match text {
            Some(text) => {
                effects::check_other_shell(self.findings, inside.last().map_or("", String::as_str), text);
                parse_nested(text, self.findings, inside);
            }
            None => self.findings.mark_uncertain("a shell reads its commands from an unknown input"),
        }
    }
}
