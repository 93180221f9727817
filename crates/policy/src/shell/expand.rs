//! What `$` and backticks begin: substitutions, parameters, `$'…'`. Commands inside them are read where they stand.

use super::Word;
use super::listing;
use super::parse::{Parser, Read, read_nested, stop};
use super::shape::{Atom, Hole, Shape};
use super::word::Spelling;

impl Parser<'_, '_> {
    /// What begins with the `$` that stands here.
    pub(super) fn dollar(&mut self, spelling: &mut Spelling, in_double: bool) -> Read<()> {
        match self.byte(1) {
            Some(b'(') if self.byte(2) == Some(b'(') => {
                self.pos += 3;
                self.arithmetic("))")?;
                spelling.hole(Hole::Number, in_double);
            }
            Some(b'(') => {
                self.pos += 2;
                let printed = self.substitution("$( )")?;
                spelling.hole(Hole::Output(printed), in_double);
            }
            Some(b'[') => {
                self.pos += 2;
                self.arithmetic("]")?;
                spelling.hole(Hole::Number, in_double);
            }
            Some(b'{') => {
                self.pos += 2;
                let hole = self.nested("${ }", |parser| parser.parameter(in_double))?;
                spelling.hole(hole, in_double);
            }
            Some(b'\'') if !in_double => {
                self.pos += 1;
                self.ansi_c(spelling)?;
            }
            Some(b'"') if !in_double => {
                self.found.unsure("`$\"…\"` is translated before it is used");
                self.pos += 2;
                self.double_quoted(spelling)?;
            }
            Some(b'\\') if self.byte(2) == Some(b'\n') => return stop("`$` is continued on the next line"),
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => {
                self.pos += 1;
                let name = self.name();
                if self.byte(0) == Some(b'\\') && self.byte(1) == Some(b'\n') {
                    return stop("the name of a variable is continued on the next line");
                }
                spelling.hole(Hole::Variable { name, cut: false, bare: true }, in_double);
            }
            Some(b @ (b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) => {
                self.pos += 2;
                let number = matches!(b, b'#' | b'?' | b'$' | b'!');
                spelling.hole(if number { Hole::Number } else { Hole::Anything }, in_double);
            }
            _ => {
                self.pos += 1;
                spelling.text.push(('$', true));
            }
        }
        Ok(())
    }

    pub(super) fn name(&mut self) -> String {
        let start = self.pos;
        while self.byte(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.pos += 1;
        }
        self.slice(start, self.pos).to_owned()
    }

    /// The commands of `$( … )`, `<( … )` and their like, behind the opening parenthesis, and what they print.
    pub(super) fn substitution(&mut self, what: &str) -> Read<Shape> {
        let before = self.found.counts();
        self.nested(what, |parser| {
            parser.list()?;
            if parser.byte(0) != Some(b')') {
                return stop(format!("syntax: {what} is not closed"));
            }
            parser.pos += 1;
            Ok(())
        })?;
        Ok(self.printed_since(before))
    }

    /// What the commands since then print. Files that the shell opens for them may say anything.
    pub(super) fn printed_since(&self, (commands, redirects): (usize, usize)) -> Shape {
        if self.found.line.redirects.len() > redirects {
            return Shape::anything();
        }
        listing::printed(self.found.line.commands.get(commands..).unwrap_or_default())
    }

    /// The commands between backticks. With backslashes in them the text is another one than stands here.
    pub(super) fn backticks(&mut self, in_double: bool) -> Read<Shape> {
        let before = self.found.counts();
        let start = self.pos + 1;
        let mut at = start;
        let mut text = String::new();
        let mut changed = false;
        let bytes = self.text.as_bytes();
        let close = loop {
            match bytes.get(at).filter(|_| at < self.end) {
                None => return stop("a backtick is not closed"),
                Some(b'`') => break at,
                Some(b'\\') => {
                    changed = true;
                    let next = self.text.get(at + 1..self.end).and_then(|rest| rest.chars().next());
                    let Some(next) = next else { return stop("a backtick is not closed") };
                    let drops = matches!(next, '$' | '`' | '\\') || (in_double && next == '"');
                    if !drops {
                        text.push('\\');
                    }
                    text.push(next);
                    at += 1 + next.len_utf8();
                }
                Some(_) => {
                    let next = self.text.get(at..self.end).and_then(|rest| rest.chars().next());
                    let Some(next) = next else { return stop("the text ends inside a character") };
                    text.push(next);
                    at += next.len_utf8();
                }
            }
        };
        if changed {
            let mut inside = self.inside.clone();
            inside.push("` `".to_owned());
            self.found.unsure("backticks with escapes in them; `$( )` is clearer");
            read_nested(&text, self.found, inside);
        } else {
            self.pos = start;
            let end = std::mem::replace(&mut self.end, close);
            let read = self.nested("` `", Self::whole);
            self.end = end;
            read?;
        }
        self.pos = close + 1;
        Ok(self.printed_since(before))
    }

    /// What stands behind `${`, and the closing brace.
    fn parameter(&mut self, in_double: bool) -> Read<Hole> {
        let counts = self.byte(0) == Some(b'#') && self.byte(1) != Some(b'}');
        let indirect = self.byte(0) == Some(b'!');
        if indirect || (self.byte(0) == Some(b'#') && self.byte(1) != Some(b'}')) {
            self.pos += 1;
        }
        let mut name = self.name();
        if name.is_empty() {
            match self.byte(0) {
                Some(b @ (b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) => {
                    name.push(char::from(b));
                    self.pos += 1;
                }
                Some(b'}') => {}
                _ => return stop("`${` without the name of a variable"),
            }
        }
        let element = self.byte(0) == Some(b'[');
        if element {
            self.pos += 1;
            if (self.starts("@]") || self.starts("*]")) && !name.is_empty() {
                self.pos += 2;
                if indirect {
                    self.rest_of_parameter(in_double)?;
                    return Ok(Hole::Anything);
                }
            } else {
                self.arithmetic("]")?;
            }
        }
        if indirect && !name.is_empty() && !matches!(self.byte(0), Some(b'@' | b'*')) {
            self.found.unsure(format!("`${{!{name}}}` evaluates what `{name}` names"));
        }
        self.operator(&name)?;
        let cuts = match self.byte(0) {
            Some(b'}') => Some(false),
            Some(b'%' | b'#' | b'^' | b',') => Some(true),
            Some(b':') if self.byte(1).is_some_and(|b| b.is_ascii_digit() || b == b' ') => Some(true),
            _ => None,
        };
        self.rest_of_parameter(in_double)?;
        let plain = !indirect && !element && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        Ok(match cuts {
            _ if counts => Hole::Number,
            Some(cut) if plain => Hole::Variable { name, cut, bare: false },
            _ => Hole::Anything,
        })
    }

    /// Operators that assign, evaluate, or run what a value says.
    fn operator(&mut self, name: &str) -> Read<()> {
        let rest = self.slice(self.pos, self.end);
        if rest.starts_with("@P") {
            self.found.unsure(format!("`${{{name}@P}}` runs what the value of `{name}` says"));
        } else if rest.starts_with('=') || rest.starts_with(":=") {
            self.found.assigned(name, &Word::unknown(""), false);
        } else if let Some(offset) = rest.strip_prefix(':')
            && !offset.starts_with(['-', '+', '?', '='])
        {
            let offset: String = offset.chars().take_while(|c| *c != '}').collect();
            self.evaluates(&offset);
            if offset.contains(['(', '`', '\'', '"', '\\']) {
                self.found.unsure("the offset of a substring is computed by commands");
            }
        }
        Ok(())
    }

    /// Up to the closing brace of a parameter.
    fn rest_of_parameter(&mut self, in_double: bool) -> Read<()> {
        let mut spelling = Spelling::new();
        loop {
            match self.byte(0) {
                None => return stop("`${` is not closed"),
                Some(b'}') => {
                    self.pos += 1;
                    return Ok(());
                }
                Some(b'\'') if in_double => {
                    self.found.unsure("a single quote in `${ }` between double quotes");
                    self.pos += 1;
                }
                Some(b'<' | b'>') if self.byte(1) == Some(b'(') && !in_double => {
                    self.pos += 2;
                    self.substitution("<( )")?;
                }
                Some(b'$') => self.dollar(&mut spelling, in_double)?,
                Some(b'"') => {
                    self.pos += 1;
                    self.double_quoted(&mut spelling)?;
                }
                Some(b'{') => {
                    self.found.unsure("a brace in `${ }`");
                    self.pos += 1;
                }
                Some(byte) => self.piece(byte, &mut spelling)?,
            }
        }
    }

    /// `$'…'`, from its first quote on. What does not come out as plain text is not known.
    fn ansi_c(&mut self, spelling: &mut Spelling) -> Read<()> {
        spelling.plain = false;
        self.pos += 1;
        loop {
            let Some(c) = self.character(0) else { return stop("`$'` is not closed") };
            self.pos += c.len_utf8();
            match c {
                '\'' => return Ok(()),
                '\\' => match self.escape()? {
                    Some(c) => spelling.text.push((c, true)),
                    None => spelling.hole(Hole::Output(Shape::of(Atom::Any)), true),
                },
                c => spelling.text.push((c, true)),
            }
        }
    }

    /// What a backslash in `$'…'` stands for, if it is one plain character.
    fn escape(&mut self) -> Read<Option<char>> {
        let Some(c) = self.character(0) else { return stop("`$'` is not closed") };
        self.pos += c.len_utf8();
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
                self.pos -= 1;
                self.digits(8, 3)
            }
            'x' => self.digits(16, 2),
            'u' => self.digits(16, 4),
            'U' => self.digits(16, 8),
            _ => None,
        };
        // NUL cuts the word off, and above ASCII the bytes depend on the locale.
        Ok(number.and_then(char::from_u32).filter(|c| c.is_ascii() && *c != '\0'))
    }

    fn digits(&mut self, radix: u32, most: usize) -> Option<u32> {
        let mut value = None;
        for _ in 0..most {
            let Some(digit) = self.byte(0).and_then(|b| char::from(b).to_digit(radix)) else { break };
            value = Some(value.unwrap_or(0_u32).wrapping_mul(radix).wrapping_add(digit));
            self.pos += 1;
        }
        value
    }
}
