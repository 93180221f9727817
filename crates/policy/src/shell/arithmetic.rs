//! Arithmetic: `$(( ))`, `(( ))`, `$[ ]`, subscripts. Bash evaluates the values of variables again, and a subscript in
//! such a value may run commands: so every name that is evaluated is noted, and what cannot be known is unsure.

use super::parse::{Parser, Read, stop};
use super::word::Spelling;

impl Parser<'_, '_> {
    /// An expression up to its close: `))`, `]`, or `;` in the head of a `for`.
    pub(super) fn arithmetic(&mut self, close: &str) -> Read<()> {
        let start = self.pos;
        if let Err(reason) = self.nested("(( ))", |parser| parser.expression(close)) {
            // Should it be commands after all, they are seen from here on.
            self.pos = start;
            return Err(reason);
        }
        let text = self.slice(start, self.pos).to_owned();
        self.evaluates(&text);
        Ok(())
    }

    fn expression(&mut self, close: &str) -> Read<()> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            if open.is_empty() && self.starts(close) {
                self.pos += close.len();
                return Ok(());
            }
            let Some(byte) = self.byte(0) else { return stop("arithmetic is not closed") };
            match byte {
                b'(' | b'[' => open.push(if byte == b'(' { b')' } else { b']' }),
                b')' | b']' => {
                    if open.pop() != Some(byte) {
                        return stop("what looks like arithmetic may be commands");
                    }
                }
                b'$' => {
                    self.evaluated_dollar()?;
                    continue;
                }
                b'"' => {
                    self.pos += 1;
                    self.double_quoted(&mut Spelling::new())?;
                    self.found.unsure("quotes inside arithmetic");
                    continue;
                }
                b'`' => {
                    self.backticks(false)?;
                    self.found.unsure("arithmetic evaluates what a command prints");
                    continue;
                }
                b if b.is_ascii_alphanumeric() || b" \t\n_+-*/%<>=!&|^~?:,#.".contains(&b) => {}
                _ => return stop("what looks like arithmetic holds other characters"),
            }
            self.pos += 1;
        }
    }

    /// An expansion whose text is evaluated: a plain variable, or arithmetic; anything else cannot be known.
    fn evaluated_dollar(&mut self) -> Read<()> {
        let safe = match (self.byte(1), self.byte(2)) {
            (Some(b'('), Some(b'(')) => true,
            (Some(b'#' | b'?' | b'$'), _) => true,
            (Some(b'{'), Some(b'#')) => true,
            (Some(b'{'), _) => self.text.get(self.pos + 2..self.end).is_some_and(|rest| {
                let name: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                name.starts_with(|c: char| !c.is_ascii_digit())
                    && rest.get(name.len()..).is_some_and(|r| r.starts_with('}'))
            }),
            (Some(b), _) => b.is_ascii_alphabetic() || b == b'_',
            (None, _) => false,
        };
        if !safe {
            self.found.unsure("arithmetic evaluates what a command prints or an argument says");
        }
        self.dollar(&mut Spelling::new(), true)
    }

    /// Notes every name in an expression: its value is evaluated, and it may be given one.
    pub(super) fn evaluates(&mut self, expression: &str) {
        let apart = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        for name in expression.split(apart) {
            if !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) {
                self.found.evaluated(name);
                if super::environment::poisons(name) {
                    self.found.poison(format!("`{name}` is computed, which can change what commands do"));
                }
            }
        }
    }
}
