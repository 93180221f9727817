//! Redirections and here-documents.

use super::super::commands::simple::SimpleCommand;
use super::super::effects;
use super::super::parse::{ParseResult, ShellParser, parse_error, parse_nested};
use super::super::words::word::{WordMode, WordToken};

/// A here-document whose body has not been parsed yet.
#[derive(Debug)]
pub(in crate::shell) struct Heredoc {
    delimiter: String,
    quoted: bool,
    strips_tabs: bool,
    /// The body is the script of a shell inside these constructs.
    pub(in crate::shell) script: Option<Vec<String>>,
}
/// The longest operators come first.
const REDIRECT_OPERATORS: &[&str] =
    &["<<<", "<<-", "&>>", "<<", ">>", "<&", ">&", "<>", ">|", "&>", "<", ">"];

impl ShellParser<'_, '_> {
    /// Parses one redirection, if there is one.
    pub(in crate::shell) fn parse_redirection(&mut self, simple: &mut SimpleCommand) -> ParseResult<bool> {
        let start = self.cursor.pos;
        self.skip_descriptor();
        self.reject_split_operator()?;
        let Some(operator) = REDIRECT_OPERATORS.iter().find(|operator| self.cursor.starts_with(operator))
        else {
            self.cursor.pos = start;
            return Ok(false);
        };
        // `<(` and `>(` begin a word.
        if matches!(*operator, "<" | ">") && self.cursor.peek_byte(1) == Some(b'(') {
            self.cursor.pos = start;
            return Ok(false);
        }
        if operator.starts_with('&') && self.cursor.pos != start {
            self.cursor.pos = start;
            return Ok(false);
        }
        simple.note_redirect(self.cursor.slice(start, self.cursor.pos), operator);
        self.cursor.pos += operator.len();
        self.cursor.skip_blanks();
        match *operator {
            "<<" | "<<-" => self.parse_heredoc(*operator == "<<-")?,
            "<<<" => {
                let Some(token) = self.parse_word(WordMode::Value)? else {
                    return parse_error("syntax: `<<<` without a word");
                };
                self.reject_descriptor(&token)?;
                simple.herestring = Some(token.known);
            }
            // `-` closes the descriptor, and following text is a separate word.
            "<&" | ">&" if self.cursor.peek_byte(0) == Some(b'-') => self.cursor.pos += 1,
            operator => {
                let Some(token) = self.parse_word(WordMode::Plain)? else {
                    return parse_error(format!("syntax: `{operator}` without a file"));
                };
                self.reject_descriptor(&token)?;
                self.add_opened_file(operator, token);
            }
        }
        Ok(true)
    }

    /// Rejects a number before another redirection: it is a descriptor and not a file.
    fn reject_descriptor(&self, token: &WordToken) -> ParseResult<()> {
        let number = token.raw.bytes().all(|b| b.is_ascii_digit());
        if number && self.cursor.peek_byte(0).is_some_and(|b| b == b'<' || b == b'>') {
            return parse_error("syntax: a descriptor in place of a file");
        }
        Ok(())
    }

    /// Skips `2` or `{name}` directly before a redirection.
    fn skip_descriptor(&mut self) {
        let start = self.cursor.pos;
        while self.cursor.peek_byte(0).is_some_and(|b| b.is_ascii_digit()) {
            self.cursor.pos += 1;
        }
        if self.cursor.pos == start && self.cursor.peek_byte(0) == Some(b'{') {
            self.cursor.pos += 1;
            while self.cursor.peek_byte(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
                self.cursor.pos += 1;
            }
            if self.cursor.peek_byte(0) == Some(b'}') && self.cursor.pos > start + 1 {
                self.cursor.pos += 1
            } else {
                self.cursor.pos = start
            }
        }
        if self.cursor.pos > start && !self.cursor.peek_byte(0).is_some_and(|b| b == b'<' || b == b'>') {
            self.cursor.pos = start;
        }
    }

    fn add_opened_file(&mut self, operator: &str, token: WordToken) {
        let duplicates = matches!(operator, "<&" | ">&");
        if duplicates && let Some(known) = &token.known {
            let digits = known.strip_suffix('-').unwrap_or(known);
            if digits.bytes().all(|b| b.is_ascii_digit()) {
                return;
            }
        }
        if duplicates {
            self.note_double_expansion(operator, &token);
        }
        let writes = operator != "<" && operator != "<&";
        self.findings.add_redirect(token.into_word(), writes);
    }

    /// Bash expands a file after `>&` again without its quotes: `>&'$(rm x)'` runs `rm`.
    fn note_double_expansion(&mut self, operator: &str, token: &WordToken) {
        let text = token.known.as_ref().unwrap_or(&token.raw);
        let plain = |c: char| c.is_alphanumeric() || "_-./,:+@%".contains(c);
        if token.known.is_some() && text.chars().all(plain) {
            return;
        }
        self.findings.mark_uncertain(format!(
            "bash expands the text after `{operator}` twice, even in quotes; use `&>` instead"
        ));
        let inside = self.enclosing.iter().cloned().chain([operator.to_owned()]).collect();
        parse_nested(&text.clone(), self.findings, inside);
    }

    fn parse_heredoc(&mut self, strips_tabs: bool) -> ParseResult<()> {
        let Some((delimiter, quoted)) = self.parse_delimiter()? else {
            return parse_error("syntax: a here-document without a delimiter");
        };
        self.substitution.heredocs += 1;
        self.heredocs.push(Heredoc { delimiter, quoted, strips_tabs, script: None });
        Ok(())
    }

    /// Parses the body of a here-document; the commands of its expansions run too.
    pub(in crate::shell) fn parse_heredoc_body(&mut self, heredoc: &Heredoc) -> ParseResult<()> {
        let mut body = String::new();
        let start = self.cursor.pos;
        let stop_at = loop {
            let from = self.cursor.pos;
            if from >= self.cursor.end {
                return parse_error(format!("the here-document is not terminated (`{}`)", heredoc.delimiter));
            }
            let mut line = self.read_body_line(heredoc.quoted);
            if heredoc.strips_tabs {
                line = line.trim_start_matches('\t').to_owned();
            }
            if line == heredoc.delimiter {
                break from;
            }
            body.push_str(&line);
            body.push('\n');
        };
        let after = self.cursor.pos;
        if !heredoc.quoted {
            self.cursor.pos = start;
            let end = std::mem::replace(&mut self.cursor.end, stop_at);
            let read = self.parse_inside("<<", Self::parse_heredoc_text);
            self.cursor.end = end;
            read?;
        }
        self.cursor.pos = after;
        if let Some(inside) = &heredoc.script {
            if !heredoc.quoted && body.contains(['$', '`', '\\']) {
                self.findings.mark_uncertain("a shell reads a here-document after its expansion");
            }
            effects::check_other_shell(self.findings, inside.last().map_or("", String::as_str), &body);
            parse_nested(&body, self.findings, inside.clone());
        }
        Ok(())
    }

    /// Returns one line of a body; if the body is expanded, a trailing backslash continues the line.
    fn read_body_line(&mut self, quoted: bool) -> String {
        let mut line = String::new();
        loop {
            let from = self.cursor.pos;
            while self.cursor.peek_byte(0).is_some_and(|b| b != b'\n') {
                self.cursor.pos += 1;
            }
            line.push_str(self.cursor.slice(from, self.cursor.pos));
            self.cursor.pos = (self.cursor.pos + 1).min(self.cursor.end);
            let slashes = line.bytes().rev().take_while(|b| *b == b'\\').count();
            if quoted || slashes.is_multiple_of(2) || self.cursor.pos >= self.cursor.end {
                return line;
            }
            line.pop();
        }
    }
}
