//! Arithmetic: `$(( ))`, `(( ))`, `$[ ]`, subscripts. Bash evaluates the values of variables again, and a
//! subscript in such a value may run commands. So every evaluated name is recorded, and an unknown value
//! makes the line uncertain.

use super::super::parse::{ParseResult, ShellParser, parse_error};
use super::super::words::word::WordBuilder;

impl ShellParser<'_, '_> {
    /// Parses an expression up to its closing `))`, `]`, or `;` in the head of a `for`.
    pub(in crate::shell) fn parse_arithmetic(&mut self, close: &str) -> ParseResult<()> {
        let start = self.cursor.pos;
        if let Err(reason) = self.parse_inside("(( ))", |parser| parser.parse_expression(close)) {
            // If the text is commands after all, they are found from here on.
            self.cursor.pos = start;
            return Err(reason);
        }
        let text = self.cursor.slice(start, self.cursor.pos).to_owned();
        self.note_evaluated_names(&text);
        Ok(())
    }

    fn parse_expression(&mut self, close: &str) -> ParseResult<()> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            if open.is_empty() && self.cursor.starts_with(close) {
                self.cursor.pos += close.len();
                return Ok(());
            }
            let Some(byte) = self.cursor.peek_byte(0) else { return parse_error("arithmetic is not closed") };
            match byte {
                b'(' | b'[' => open.push(if byte == b'(' { b')' } else { b']' }),
                b')' | b']' => {
                    if open.pop() != Some(byte) {
                        return parse_error("the arithmetic may contain commands");
                    }
                }
                b'$' => {
                    self.parse_evaluated_dollar()?;
                    continue;
                }
                b'"' => {
                    self.cursor.pos += 1;
                    self.parse_double_quoted(&mut WordBuilder::new())?;
                    self.findings.mark_uncertain("quotes inside arithmetic");
                    continue;
                }
                b'`' => {
                    self.parse_backticks(false)?;
                    self.findings.mark_uncertain("arithmetic evaluates the output of a command");
                    continue;
                }
                b if b.is_ascii_alphanumeric() || b" \t\n_+-*/%<>=!&|^~?:,#.".contains(&b) => {}
                _ => return parse_error("the arithmetic contains unexpected characters"),
            }
            self.cursor.pos += 1;
        }
    }

    /// Parses an expansion whose text is evaluated. Everything except a plain variable or arithmetic is
    /// uncertain.
    fn parse_evaluated_dollar(&mut self) -> ParseResult<()> {
        let safe = match (self.cursor.peek_byte(1), self.cursor.peek_byte(2)) {
            (Some(b'('), Some(b'(')) => true,
            (Some(b'#' | b'?' | b'$'), _) => true,
            (Some(b'{'), Some(b'#')) => true,
            (Some(b'{'), _) => {
                self.cursor.text.get(self.cursor.pos + 2..self.cursor.end).is_some_and(|rest| {
                    let name: String =
                        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                    name.starts_with(|c: char| !c.is_ascii_digit())
                        && rest.get(name.len()..).is_some_and(|r| r.starts_with('}'))
                })
            }
            (Some(b), _) => b.is_ascii_alphabetic() || b == b'_',
            (None, _) => false,
        };
        if !safe {
            self.findings.mark_uncertain("arithmetic evaluates the output of a command or an argument");
        }
        self.parse_dollar(&mut WordBuilder::new(), true)
    }

    /// Records every name in an expression: its value is evaluated, and the expression may assign it.
    pub(in crate::shell) fn note_evaluated_names(&mut self, expression: &str) {
        let apart = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        for name in expression.split(apart) {
            if !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) {
                self.findings.add_evaluated(name);
                if super::super::words::env_vars::is_dangerous_variable(name) {
                    self.findings
                        .mark_dangerous(format!("`{name}` is computed, which can change what commands do"));
                }
            }
        }
    }
}
