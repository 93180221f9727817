//! Expansions with `$` and backticks: substitutions, parameters, `$'…'`. Commands inside them are parsed in
//! place.

use super::super::findings::FindingCounts;
use super::super::parse::{ParseResult, ShellParser, parse_error, parse_nested};
use super::super::shape::{ShapeAtom, UnknownPart, WordShape};
use super::super::words::word::WordBuilder;
use super::super::{ShellWord, output_shape};

impl ShellParser<'_, '_> {
    /// Parses the expansion at the current `$`.
    pub(in crate::shell) fn parse_dollar(
        &mut self,
        spelling: &mut WordBuilder,
        in_double: bool,
    ) -> ParseResult<()> {
        match self.cursor.peek_byte(1) {
            Some(b'(') if self.cursor.peek_byte(2) == Some(b'(') => {
                self.cursor.pos += 3;
                self.parse_arithmetic("))")?;
                spelling.push_unknown(UnknownPart::Number, in_double);
            }
            Some(b'(') => {
                self.cursor.pos += 2;
                let printed = self.parse_substitution("$( )")?;
                spelling.push_unknown(UnknownPart::Output(printed), in_double);
            }
            Some(b'[') => {
                self.cursor.pos += 2;
                self.parse_arithmetic("]")?;
                spelling.push_unknown(UnknownPart::Number, in_double);
            }
            Some(b'{') => {
                self.cursor.pos += 2;
                let hole = self.parse_inside("${ }", |parser| parser.parse_parameter(in_double))?;
                spelling.push_unknown(hole, in_double);
            }
            Some(b'\'') if !in_double => {
                self.cursor.pos += 1;
                self.parse_ansi_c(spelling)?;
            }
            Some(b'"') if !in_double => {
                self.findings.mark_uncertain("`$\"…\"` is translated before it is used");
                self.cursor.pos += 2;
                self.parse_double_quoted(spelling)?;
            }
            Some(b'\\') if self.cursor.peek_byte(2) == Some(b'\n') => {
                return parse_error("`$` is continued on the next line");
            }
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => {
                self.cursor.pos += 1;
                let name = self.parse_name();
                if self.cursor.peek_byte(0) == Some(b'\\') && self.cursor.peek_byte(1) == Some(b'\n') {
                    return parse_error("the name of a variable is continued on the next line");
                }
                spelling.push_unknown(UnknownPart::Variable { name, cut: false, bare: true }, in_double);
            }
            Some(b @ (b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) => {
                self.cursor.pos += 2;
                let number = matches!(b, b'#' | b'?' | b'$' | b'!');
                spelling.push_unknown(
                    if number { UnknownPart::Number } else { UnknownPart::Anything },
                    in_double,
                );
            }
            _ => {
                self.cursor.pos += 1;
                spelling.text.push(('$', true));
            }
        }
        Ok(())
    }

    pub(in crate::shell) fn parse_name(&mut self) -> String {
        let start = self.cursor.pos;
        while self.cursor.peek_byte(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.cursor.pos += 1;
        }
        self.cursor.slice(start, self.cursor.pos).to_owned()
    }

    /// Parses the commands of `$( … )`, `<( … )` and similar after the opening parenthesis, and returns their
    /// output.
    pub(in crate::shell) fn parse_substitution(&mut self, label: &str) -> ParseResult<WordShape> {
        let before = self.findings.counts();
        self.parse_inside(label, |parser| {
            parser.parse_list()?;
            if parser.cursor.peek_byte(0) != Some(b')') {
                return parse_error(format!("syntax: {label} is not closed"));
            }
            parser.cursor.pos += 1;
            Ok(())
        })?;
        Ok(self.output_since(before))
    }

    /// Returns the output of the commands since `counts`. It is unknown if the shell opens files for them.
    pub(in crate::shell) fn output_since(&self, counts: FindingCounts) -> WordShape {
        if self.findings.line.redirects.len() > counts.redirects {
            return WordShape::any_text();
        }
        output_shape::pipeline_output(self.findings.line.commands.get(counts.commands..).unwrap_or_default())
    }

    /// Parses the commands between backticks. Backslashes in them change the text, so it is unescaped first.
    pub(in crate::shell) fn parse_backticks(&mut self, in_double: bool) -> ParseResult<WordShape> {
        let before = self.findings.counts();
        let start = self.cursor.pos + 1;
        let mut at = start;
        let mut text = String::new();
        let mut changed = false;
        let bytes = self.cursor.text.as_bytes();
        let close = loop {
            match bytes.get(at).filter(|_| at < self.cursor.end) {
                None => return parse_error("a backtick is not closed"),
                Some(b'`') => break at,
                Some(b'\\') => {
                    changed = true;
                    let next =
                        self.cursor.text.get(at + 1..self.cursor.end).and_then(|rest| rest.chars().next());
                    let Some(next) = next else { return parse_error("a backtick is not closed") };
                    let drops = matches!(next, '$' | '`' | '\\') || (in_double && next == '"');
                    if !drops {
                        text.push('\\');
                    }
                    text.push(next);
                    at += 1 + next.len_utf8();
                }
                Some(_) => {
                    let next = self.cursor.text.get(at..self.cursor.end).and_then(|rest| rest.chars().next());
                    let Some(next) = next else { return parse_error("the text ends inside a character") };
                    text.push(next);
                    at += next.len_utf8();
                }
            }
        };
        if changed {
            let mut inside = self.enclosing.clone();
            inside.push("` `".to_owned());
            self.findings.mark_uncertain("backticks contain escapes; `$( )` is clearer");
            parse_nested(&text, self.findings, inside);
        } else {
            self.cursor.pos = start;
            let end = std::mem::replace(&mut self.cursor.end, close);
            let read = self.parse_inside("` `", Self::parse_whole);
            self.cursor.end = end;
            read?;
        }
        self.cursor.pos = close + 1;
        Ok(self.output_since(before))
    }

    /// Parses the text after `${`, including the closing brace.
    fn parse_parameter(&mut self, in_double: bool) -> ParseResult<UnknownPart> {
        let counts = self.cursor.peek_byte(0) == Some(b'#') && self.cursor.peek_byte(1) != Some(b'}');
        let indirect = self.cursor.peek_byte(0) == Some(b'!');
        if indirect || (self.cursor.peek_byte(0) == Some(b'#') && self.cursor.peek_byte(1) != Some(b'}')) {
            self.cursor.pos += 1;
        }
        let mut name = self.parse_name();
        if name.is_empty() {
            match self.cursor.peek_byte(0) {
                Some(b @ (b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) => {
                    name.push(char::from(b));
                    self.cursor.pos += 1;
                }
                Some(b'}') => {}
                _ => return parse_error("`${` without the name of a variable"),
            }
        }
        let element = self.cursor.peek_byte(0) == Some(b'[');
        if element {
            self.cursor.pos += 1;
            if (self.cursor.starts_with("@]") || self.cursor.starts_with("*]")) && !name.is_empty() {
                self.cursor.pos += 2;
                if indirect {
                    self.skip_parameter_rest(in_double)?;
                    return Ok(UnknownPart::Anything);
                }
            } else {
                self.parse_arithmetic("]")?;
            }
        }
        if indirect && !name.is_empty() && !matches!(self.cursor.peek_byte(0), Some(b'@' | b'*')) {
            self.findings.mark_uncertain(format!("`${{!{name}}}` evaluates the value of `{name}` as a name"));
        }
        self.note_operator(&name)?;
        let cuts = match self.cursor.peek_byte(0) {
            Some(b'}') => Some(false),
            Some(b'%' | b'#' | b'^' | b',') => Some(true),
            Some(b':') if self.cursor.peek_byte(1).is_some_and(|b| b.is_ascii_digit() || b == b' ') => {
                Some(true)
            }
            _ => None,
        };
        self.skip_parameter_rest(in_double)?;
        let plain = !indirect && !element && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        Ok(match cuts {
            _ if counts => UnknownPart::Number,
            Some(cut) if plain => UnknownPart::Variable { name, cut, bare: false },
            _ => UnknownPart::Anything,
        })
    }

    /// Records operators that assign, evaluate, or run the value.
    fn note_operator(&mut self, name: &str) -> ParseResult<()> {
        let rest = self.cursor.slice(self.cursor.pos, self.cursor.end);
        if rest.starts_with("@P") {
            self.findings.mark_uncertain(format!("`${{{name}@P}}` runs the value of `{name}`"));
        } else if rest.starts_with('=') || rest.starts_with(":=") {
            self.findings.assign_variable(name, &ShellWord::any_value(""), false);
        } else if let Some(offset) = rest.strip_prefix(':')
            && !offset.starts_with(['-', '+', '?', '='])
        {
            let offset: String = offset.chars().take_while(|c| *c != '}').collect();
            self.note_evaluated_names(&offset);
            if offset.contains(['(', '`', '\'', '"', '\\']) {
                self.findings.mark_uncertain("the offset of a substring contains commands");
            }
        }
        Ok(())
    }

    /// Skips to the closing brace of a parameter.
    fn skip_parameter_rest(&mut self, in_double: bool) -> ParseResult<()> {
        let mut spelling = WordBuilder::new();
        loop {
            match self.cursor.peek_byte(0) {
                None => return parse_error("`${` is not closed"),
                Some(b'}') => {
                    self.cursor.pos += 1;
                    return Ok(());
                }
                Some(b'\'') if in_double => {
                    self.findings.mark_uncertain("a single quote in `${ }` between double quotes");
                    self.cursor.pos += 1;
                }
                Some(b'<' | b'>') if self.cursor.peek_byte(1) == Some(b'(') && !in_double => {
                    self.cursor.pos += 2;
                    self.parse_substitution("<( )")?;
                }
                Some(b'$') => self.parse_dollar(&mut spelling, in_double)?,
                Some(b'"') => {
                    self.cursor.pos += 1;
                    self.parse_double_quoted(&mut spelling)?;
                }
                Some(b'{') => {
                    self.findings.mark_uncertain("a brace in `${ }`");
                    self.cursor.pos += 1;
                }
                Some(byte) => self.parse_piece(byte, &mut spelling)?,
            }
        }
    }

    /// Parses `$'…'` from its first quote. Parts that are not plain text are unknown.
    fn parse_ansi_c(&mut self, spelling: &mut WordBuilder) -> ParseResult<()> {
        spelling.plain = false;
        self.cursor.pos += 1;
        loop {
            let Some(c) = self.cursor.peek_char(0) else { return parse_error("`$'` is not closed") };
            self.cursor.pos += c.len_utf8();
            match c {
                '\'' => return Ok(()),
                '\\' => match self.parse_escape()? {
                    Some(c) => spelling.text.push((c, true)),
                    None => spelling
                        .push_unknown(UnknownPart::Output(WordShape::from_atom(ShapeAtom::AnyText)), true),
                },
                c => spelling.text.push((c, true)),
            }
        }
    }

    /// Returns the character of a backslash sequence in `$'…'`, if it is a plain one.
    fn parse_escape(&mut self) -> ParseResult<Option<char>> {
        let Some(c) = self.cursor.peek_char(0) else { return parse_error("`$'` is not closed") };
        self.cursor.pos += c.len_utf8();
        let number = match c {
            'a' => return Ok(Some('\u{7}')),
            'b' => return Ok(Some('\u{8}')),
            'e' | 'E' => return Ok(Some('\u{1b}')),
            'f' => return Ok(Some('\u{c}')),
            'n' => return Ok(Some('\n')),
            'r' => return Ok(Some('\r')),
            't' => return Ok(Some('\t')),
            'v' => return Ok(Some('\u{b}')),
            '\\' | '\'' | '"' | '?' => return Ok(Some(c)),
            '0'..='7' => {
                self.cursor.pos -= 1;
                self.cursor.parse_digits(8, 3)
            }
            'x' => self.cursor.parse_digits(16, 2),
            'u' => self.cursor.parse_digits(16, 4),
            'U' => self.cursor.parse_digits(16, 8),
            _ => None,
        };
        // NUL truncates the word, and above ASCII the bytes depend on the locale.
        Ok(number.and_then(char::from_u32).filter(|c| c.is_ascii() && *c != '\0'))
    }
}
