//! Simple commands: assignments and words, and who runs them.

use super::parse::{Parser, Read, is_reserved_word, read_nested, stop};
use super::word::{Mode, Token};
use super::{Command, Shape, Word, builtin, runs};

/// A simple command as it is being read.
#[derive(Debug, Default)]
pub(super) struct Simple {
    assignments: Vec<(String, Word)>,
    words: Vec<Token>,
    /// The text of `<<<`: known or not.
    pub(super) herestring: Option<Option<String>>,
    redirected: bool,
    /// How often its standard input is redirected.
    inputs: usize,
    /// Another descriptor is given input, or standard input is given an odd way.
    odd_input: bool,
}

impl Simple {
    fn declares(&self) -> bool {
        self.words.first().and_then(|token| token.known.as_deref()).is_some_and(builtin::declares)
    }

    /// Notes a redirection as far as it says what a shell would read.
    pub(super) fn redirects(&mut self, descriptor: &str, operator: &str) {
        let reads = operator.starts_with('<');
        match descriptor {
            "" | "0" if reads => self.inputs += 1,
            "0" => self.odd_input = true,
            _ => self.odd_input |= reads,
        }
    }

    /// Whether what is declared is handed to commands.
    fn exports(&self) -> bool {
        let mut words = self.words.iter().filter_map(|token| token.known.as_deref());
        words.next() == Some("export") || words.any(|word| word.starts_with('-') && word.contains('x'))
    }

    /// Whether a word would be the name of a command that something stands before.
    fn is_first_word(&self, token: &Token) -> bool {
        token.plain && self.words.is_empty() && (self.redirected || !self.assignments.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.assignments.is_empty() && !self.redirected
    }

    fn push(&mut self, mut token: Token, declares: bool) {
        match token.assigned.take() {
            Some(assigned) if self.words.is_empty() && !declares => self.assignments.push(assigned),
            assigned => {
                token.assigned = assigned;
                self.words.push(token);
            }
        }
    }

    fn all_assignments(&self) -> Vec<(String, Word)> {
        let declared = self.words.iter().filter_map(|token| token.assigned.clone());
        self.assignments.iter().cloned().chain(declared).collect()
    }
}

impl Parser<'_, '_> {
    /// A simple command: assignments, words, redirections in any order.
    pub(super) fn simple(&mut self) -> Read<()> {
        let mut simple = Simple::default();
        let heredocs = self.heredocs.len();
        let depth = self.inside.len();
        match self.words_of(&mut simple) {
            Ok(Some(function)) => self.function(function),
            Ok(None) if simple.is_empty() => {
                stop(format!("syntax: a command is missing before `{}`", self.around()))
            }
            Ok(None) => self.run(simple, heredocs),
            Err(reason) => {
                // What was seen of it is for rules that deny.
                self.inside.truncate(depth);
                let words: Vec<Word> = simple.words.into_iter().flat_map(Token::into_words).collect();
                if !words.is_empty() {
                    self.emit(Command { words, inside: self.inside.clone(), ..Command::default() })?;
                }
                Err(reason)
            }
        }
    }

    /// The words of a simple command; or the name, if it is the definition of a function.
    fn words_of(&mut self, simple: &mut Simple) -> Read<Option<Token>> {
        loop {
            self.blanks();
            if self.redirection(simple)? {
                simple.redirected = true;
                continue;
            }
            let declares = simple.declares();
            let mode = if simple.words.is_empty() || declares { Mode::MayAssign } else { Mode::Plain };
            let Some(token) = self.word(mode)? else { return Ok(None) };
            if simple.is_first_word(&token) && is_reserved_word(&token.raw) {
                // Bash writes substitutions anew with redirections last: there the word would be reserved after all.
                return stop(format!("`{}` stands behind an assignment or a redirection", token.raw));
            }
            if token.plain && simple.words.is_empty() && simple.assignments.is_empty() && self.is_function() {
                return Ok(Some(token));
            }
            simple.push(token, declares);
        }
    }

    /// Whether `()` follows, so that the word before it names a function.
    fn is_function(&mut self) -> bool {
        let place = self.pos;
        self.blanks();
        let opens = self.byte(0) == Some(b'(');
        if !opens {
            self.pos = place;
        }
        opens
    }

    /// Notes a simple command and everything that it would run.
    fn run(&mut self, simple: Simple, heredocs: usize) -> Read<()> {
        for (name, value) in &simple.assignments {
            if simple.words.is_empty() {
                self.found.assigned(name, value, false);
            }
        }
        for token in simple.words.iter().filter(|token| token.assigned.is_some()) {
            if let Some((name, value)) = &token.assigned {
                self.found.assigned(name, value, simple.exports());
            }
        }
        let printed = self.piped.take();
        let Some(first) = simple.words.first() else { return Ok(()) };
        self.begins(first.start);
        self.found.input = self.input(&simple, heredocs);
        let command = Command {
            assignments: simple.all_assignments(),
            words: simple.words.into_iter().flat_map(Token::into_words).collect(),
            inside: self.inside.clone(),
            opaque: None,
        };
        self.piped = runs::prints(&command);
        let Some(shell) = runs::command(self.found, command)? else { return Ok(()) };
        // A shell that reads its commands from standard input: where do they come from?
        if simple.odd_input || simple.inputs > 1 {
            self.found.unsure("which input a shell reads its commands from is not clear");
        }
        if let Some(text) = simple.herestring {
            self.script(text.as_deref(), shell);
            return Ok(());
        }
        if self.heredocs.len() > heredocs {
            if let Some(heredoc) = self.heredocs.last_mut() {
                heredoc.script = Some(shell);
            }
            return Ok(());
        }
        if printed.is_some() {
            self.found.unsure("a shell reads its commands from a pipe");
        } else if let Some(heredoc) = self.heredocs.last_mut() {
            heredoc.script = Some(shell);
            self.found.unsure("a shell may read a here-document of another command");
            return Ok(());
        }
        self.script(printed.as_deref(), shell);
        Ok(())
    }

    /// What a command gets on its standard input, as far as the line says.
    fn input(&self, simple: &Simple, heredocs: usize) -> Option<Shape> {
        let reads = |token: &Token| token.known.as_deref().is_some_and(|word| word.ends_with("xargs"));
        if !simple.words.iter().any(reads) {
            return None;
        }
        if simple.odd_input || simple.inputs > 0 || self.heredocs.len() > heredocs {
            return simple.herestring.as_ref()?.as_deref().map(Shape::words);
        }
        self.pipe.map(|pipe| self.printed_since(pipe))
    }

    /// What a shell reads from its standard input, if that is known.
    fn script(&mut self, text: Option<&str>, inside: Vec<String>) {
        match text {
            Some(text) => {
                runs::elsewhere(self.found, inside.last().map_or("", String::as_str), text);
                read_nested(text, self.found, inside);
            }
            None => self.found.unsure("a shell reads its commands from where they cannot be seen"),
        }
    }
}
