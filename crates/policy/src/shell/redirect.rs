//! Redirections and here-documents.

use super::parse::{Parser, Read, read_nested, stop};
use super::runs;
use super::simple::Simple;
use super::word::{Mode, Token};

/// A here-document whose body has not come yet.
#[derive(Debug)]
pub(super) struct Heredoc {
    delimiter: String,
    quoted: bool,
    tabs: bool,
    /// The body is the script of a shell that stands inside of this.
    pub(super) script: Option<Vec<String>>,
}
/// Longest first.
const OPERATORS: &[&str] = &["<<<", "<<-", "&>>", "<<", ">>", "<&", ">&", "<>", ">|", "&>", "<", ">"];

impl Parser<'_, '_> {
    /// One redirection, if one stands here.
    pub(super) fn redirection(&mut self, simple: &mut Simple) -> Read<bool> {
        let start = self.pos;
        self.descriptor();
        self.no_split_operator()?;
        let Some(operator) = OPERATORS.iter().find(|operator| self.starts(operator)) else {
            self.pos = start;
            return Ok(false);
        };
        // `<(` and `>(` begin a word.
        if matches!(*operator, "<" | ">") && self.byte(1) == Some(b'(') {
            self.pos = start;
            return Ok(false);
        }
        if operator.starts_with('&') && self.pos != start {
            self.pos = start;
            return Ok(false);
        }
        simple.redirects(self.slice(start, self.pos), operator);
        self.pos += operator.len();
        self.blanks();
        match *operator {
            "<<" | "<<-" => self.heredoc(*operator == "<<-")?,
            "<<<" => {
                let Some(token) = self.word(Mode::Value)? else {
                    return stop("syntax: `<<<` without a word");
                };
                self.no_descriptor(&token)?;
                simple.herestring = Some(token.known);
            }
            // `-` closes, and whatever is joined to it is a word of its own.
            "<&" | ">&" if self.byte(0) == Some(b'-') => self.pos += 1,
            operator => {
                let Some(token) = self.word(Mode::Plain)? else {
                    return stop(format!("syntax: `{operator}` without a file"));
                };
                self.no_descriptor(&token)?;
                self.opened(operator, token);
            }
        }
        Ok(true)
    }

    /// A number before another redirection is its descriptor and no file.
    fn no_descriptor(&self, token: &Token) -> Read<()> {
        let number = token.raw.bytes().all(|b| b.is_ascii_digit());
        if number && self.byte(0).is_some_and(|b| b == b'<' || b == b'>') {
            return stop("syntax: a descriptor stands where a file should");
        }
        Ok(())
    }

    /// `2` or `{name}` right before a redirection.
    fn descriptor(&mut self) {
        let start = self.pos;
        while self.byte(0).is_some_and(|b| b.is_ascii_digit()) {
            self.pos += 1;
        }
        if self.pos == start && self.byte(0) == Some(b'{') {
            self.pos += 1;
            while self.byte(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
                self.pos += 1;
            }
            if self.byte(0) == Some(b'}') && self.pos > start + 1 { self.pos += 1 } else { self.pos = start }
        }
        if self.pos > start && !self.byte(0).is_some_and(|b| b == b'<' || b == b'>') {
            self.pos = start;
        }
    }

    fn opened(&mut self, operator: &str, token: Token) {
        let duplicates = matches!(operator, "<&" | ">&");
        if duplicates && let Some(known) = &token.known {
            let digits = known.strip_suffix('-').unwrap_or(known);
            if digits.bytes().all(|b| b.is_ascii_digit()) {
                return;
            }
        }
        if duplicates {
            self.expanded_twice(operator, &token);
        }
        let writes = operator != "<" && operator != "<&";
        self.found.redirect(token.into_word(), writes);
    }

    /// Bash expands a file behind `>&` again after its quotes are gone: `>&'$(rm x)'` runs `rm`.
    fn expanded_twice(&mut self, operator: &str, token: &Token) {
        let text = token.known.as_ref().unwrap_or(&token.raw);
        let plain = |c: char| c.is_alphanumeric() || "_-./,:+@%".contains(c);
        if token.known.is_some() && text.chars().all(plain) {
            return;
        }
        self.found.unsure(format!(
            "bash expands what stands behind `{operator}` twice, quotes or not; `&>` is safe"
        ));
        let inside = self.inside.iter().cloned().chain([operator.to_owned()]).collect();
        read_nested(&text.clone(), self.found, inside);
    }

    fn heredoc(&mut self, tabs: bool) -> Read<()> {
        let Some((delimiter, quoted)) = self.delimiter()? else {
            return stop("syntax: a here-document without a delimiter");
        };
        self.here.heredocs += 1;
        self.heredocs.push(Heredoc { delimiter, quoted, tabs, script: None });
        Ok(())
    }

    /// The body of a here-document; what it expands runs, too.
    pub(super) fn heredoc_body(&mut self, heredoc: &Heredoc) -> Read<()> {
        let mut body = String::new();
        let start = self.pos;
        let stop_at = loop {
            let from = self.pos;
            if from >= self.end {
                return stop(format!("the here-document has no end (`{}`)", heredoc.delimiter));
            }
            let mut line = self.body_line(heredoc.quoted);
            if heredoc.tabs {
                line = line.trim_start_matches('\t').to_owned();
            }
            if line == heredoc.delimiter {
                break from;
            }
            body.push_str(&line);
            body.push('\n');
        };
        let after = self.pos;
        if !heredoc.quoted {
            self.pos = start;
            let end = std::mem::replace(&mut self.end, stop_at);
            let read = self.nested("<<", Self::heredoc_text);
            self.end = end;
            read?;
        }
        self.pos = after;
        if let Some(inside) = &heredoc.script {
            if !heredoc.quoted && body.contains(['$', '`', '\\']) {
                self.found.unsure("a shell reads a here-document that is expanded first");
            }
            runs::elsewhere(self.found, inside.last().map_or("", String::as_str), &body);
            read_nested(&body, self.found, inside.clone());
        }
        Ok(())
    }

    /// One line of a body; where it is expanded, a backslash at its end continues it.
    fn body_line(&mut self, quoted: bool) -> String {
        let mut line = String::new();
        loop {
            let from = self.pos;
            while self.byte(0).is_some_and(|b| b != b'\n') {
                self.pos += 1;
            }
            line.push_str(self.slice(from, self.pos));
            self.pos = (self.pos + 1).min(self.end);
            let slashes = line.bytes().rev().take_while(|b| *b == b'\\').count();
            if quoted || slashes.is_multiple_of(2) || self.pos >= self.end {
                return line;
            }
            line.pop();
        }
    }
}
