//! Compound commands: groups, subshells, `if`, loops, `case`, `[[ ]]`, `(( ))`, functions, `coproc`.

use super::parse::{Parser, Read, stop};
use super::simple::Simple;
use super::word::{Mode, Spelling, Token};
use super::{Command, Word};

/// Whether words between `&&`, `||` and parentheses of `[[ ]]` can be one test.
fn plausible(operands: &[String], closed: bool) -> Read<()> {
    match operands {
        [] if closed => Ok(()),
        [_] if !closed => Ok(()),
        [operator, _] if operator.starts_with('-') => Ok(()),
        [first, operator, _]
            if operator.starts_with(['-', '=', '!', '<', '>'])
                && !(first.len() == 2 && first.starts_with('-')) =>
        {
            Ok(())
        }
        _ => stop("syntax: `[[` holds words that are no test"),
    }
}

/// Operators of `[[ ]]` that evaluate both sides as arithmetic.
const COMPARE: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

impl Parser<'_, '_> {
    /// One command of a pipeline.
    pub(super) fn command(&mut self) -> Read<()> {
        self.blanks();
        self.here.commands += 1;
        let word = match self.byte(0) {
            Some(b'(') if self.byte(1) == Some(b'(') => {
                self.pos += 2;
                self.arithmetic("))")?;
                return self.redirections();
            }
            Some(b'(') => "(",
            _ => match self.reserved() {
                Some("if") => "if",
                Some("while" | "until") => "while",
                Some("for" | "select") => "for",
                Some("case") => "case",
                Some("{") => "{",
                Some("[[") => "[[",
                Some("function") => "function",
                Some("coproc") => "coproc",
                Some("!") => return stop("`!` stands where no pipeline begins"),
                Some("time") => return stop("`time` stands where no pipeline begins"),
                None => return self.simple(),
                Some(other) => return stop(format!("syntax: unexpected `{other}`")),
            },
        };
        if word == "function" {
            return self.function_word();
        }
        if word == "coproc" {
            return self.coproc();
        }
        self.compound(word)?;
        self.redirections()
    }

    fn compound(&mut self, word: &str) -> Read<()> {
        self.piped = None;
        if self.nesting >= super::NESTING {
            return stop(format!("parts of the line stand in each other more than {} deep", super::NESTING));
        }
        self.nesting += 1;
        match word {
            "(" => self.subshell()?,
            "if" => self.conditional()?,
            "while" => self.while_loop()?,
            "for" => self.for_loop()?,
            "case" => self.case()?,
            "{" => {
                self.pos += 1;
                self.some_list()?;
                self.expect("}")?;
            }
            _ => self.condition()?,
        }
        self.nesting -= 1;
        Ok(())
    }

    /// Redirections behind a compound command.
    fn redirections(&mut self) -> Read<()> {
        let mut simple = Simple::default();
        loop {
            self.blanks();
            if !self.redirection(&mut simple)? {
                return Ok(());
            }
        }
    }

    fn subshell(&mut self) -> Read<()> {
        self.pos += 1;
        self.inside.push("( )".to_owned());
        self.some_list()?;
        if self.byte(0) != Some(b')') {
            return stop("syntax: `(` is not closed");
        }
        self.pos += 1;
        self.inside.pop();
        Ok(())
    }

    fn conditional(&mut self) -> Read<()> {
        self.expect("if")?;
        self.some_list()?;
        self.expect("then")?;
        self.some_list()?;
        while self.is_reserved("elif") {
            self.expect("elif")?;
            self.some_list()?;
            self.expect("then")?;
            self.some_list()?;
        }
        if self.is_reserved("else") {
            self.expect("else")?;
            self.some_list()?;
        }
        self.expect("fi")
    }

    fn while_loop(&mut self) -> Read<()> {
        self.pos += 5;
        self.some_list()?;
        self.body()
    }

    /// `do … done`.
    fn body(&mut self) -> Read<()> {
        self.expect("do")?;
        self.some_list()?;
        self.expect("done")
    }

    fn for_loop(&mut self) -> Read<()> {
        let selects = self.is_reserved("select");
        self.pos += if selects { 6 } else { 3 };
        self.blanks();
        if !selects && self.starts("((") {
            return self.counting_loop();
        }
        let Some(variable) = self.word(Mode::Value)? else { return stop("syntax: `for` without a variable") };
        let Some(variable) = variable.known.filter(|_| variable.plain) else {
            return stop("`for` with a variable that is not a plain name");
        };
        self.newlines()?;
        let mut values = Vec::new();
        if self.is_reserved("in") {
            self.pos += 2;
            while let Some(token) = {
                self.blanks();
                self.word(Mode::Plain)?
            } {
                if token.raw == "esac" {
                    return stop("`esac` as a word of `for`");
                }
                values.extend(token.into_words());
            }
        } else {
            values.push(Word::unknown("$@"));
        }
        for value in &values {
            self.found.assigned(&variable, value, false);
        }
        if selects {
            self.found.assigned(&variable, &Word::unknown(""), false);
        }
        self.blanks();
        if self.byte(0) == Some(b';') && self.byte(1) != Some(b';') {
            self.pos += 1;
        }
        self.newlines()?;
        self.either_body()
    }

    fn either_body(&mut self) -> Read<()> {
        if self.is_reserved("{") {
            self.pos += 1;
            self.some_list()?;
            return self.expect("}");
        }
        self.body()
    }

    /// `for (( a; b; c ))`.
    fn counting_loop(&mut self) -> Read<()> {
        self.pos += 2;
        self.arithmetic(";")?;
        self.arithmetic(";")?;
        self.arithmetic("))")?;
        self.blanks();
        if self.byte(0) == Some(b';') {
            self.pos += 1;
        }
        self.newlines()?;
        self.either_body()
    }

    fn case(&mut self) -> Read<()> {
        self.expect("case")?;
        if self.word(Mode::Value)?.is_none() {
            return stop("syntax: `case` without a word");
        }
        self.newlines()?;
        self.expect("in")?;
        loop {
            self.newlines()?;
            if self.is_reserved("esac") {
                return self.expect("esac");
            }
            if self.byte(0) == Some(b'(') {
                self.pos += 1;
            }
            loop {
                if self.word(Mode::Plain)?.is_none() {
                    return stop("syntax: a pattern of `case` is missing");
                }
                self.blanks();
                match self.byte(0) {
                    Some(b'|') => self.pos += 1,
                    Some(b')') => break,
                    _ => return stop("syntax: a pattern of `case` is not closed"),
                }
            }
            self.pos += 1;
            self.list()?;
            self.blanks();
            match [";;&", ";;", ";&"].iter().find(|end| self.starts(end)) {
                Some(end) => self.pos += end.len(),
                None => return self.expect("esac"),
            }
        }
    }

    /// `function name [()] body`.
    fn function_word(&mut self) -> Read<()> {
        self.pos += "function".len();
        self.blanks();
        let Some(token) = self.word(Mode::Plain)? else { return stop("syntax: a function without a name") };
        self.blanks();
        if self.byte(0) == Some(b'(') {
            return self.function(token);
        }
        self.function_body(token)
    }

    /// `()` and the body behind the name of a function.
    pub(super) fn function(&mut self, name: Token) -> Read<()> {
        self.pos += 1;
        self.blanks();
        if self.byte(0) != Some(b')') {
            return stop("syntax: unexpected `(`");
        }
        self.pos += 1;
        self.function_body(name)
    }

    fn function_body(&mut self, name: Token) -> Read<()> {
        let Some(name) = name.known else { return stop("a function whose name is not known") };
        self.newlines()?;
        let opens = self.byte(0) == Some(b'(');
        let compound = matches!(
            self.reserved(),
            Some("{" | "if" | "while" | "until" | "for" | "select" | "case" | "[[")
        );
        if !opens && !compound {
            return stop(format!("the body of function `{name}` is not a group"));
        }
        self.found.function(&name);
        self.inside.push(format!("function {name}"));
        self.command()?;
        self.inside.pop();
        Ok(())
    }

    /// `coproc [NAME] command`.
    fn coproc(&mut self) -> Read<()> {
        self.begins(self.pos);
        self.found
            .unsure("`coproc` runs a command beside the line and ties its input and output to variables");
        self.pos += "coproc".len();
        let words = vec![Word::Known("coproc".to_owned())];
        self.emit(Command { words, inside: self.inside.clone(), ..Command::default() })?;
        self.blanks();
        let start = self.pos;
        self.name();
        self.blanks();
        let grouped = self.byte(0) == Some(b'(')
            || matches!(
                self.reserved(),
                Some("{" | "if" | "while" | "until" | "for" | "select" | "case" | "[[")
            );
        if !grouped {
            self.pos = start;
        }
        self.inside.push("coproc".to_owned());
        self.command()?;
        self.inside.pop();
        Ok(())
    }

    /// `[[ … ]]`: it runs nothing by itself; its words may.
    fn condition(&mut self) -> Read<()> {
        self.pos += 2;
        let mut last: Option<Token> = None;
        let mut compares = false;
        let mut operands = Vec::new();
        let mut closed = false;
        loop {
            self.newlines()?;
            if self.starts("]]") && self.byte(2).is_none_or(|b| b" \t\n;&|)<>".contains(&b)) {
                self.pos += 2;
                return plausible(&operands, closed);
            }
            if let Some(operator) = ["&&", "||", "(", ")", "<", ">"].iter().find(|o| self.starts(o))
                && !self.starts("<(")
                && !self.starts(">(")
            {
                self.pos += operator.len();
                (last, compares) = (None, false);
                match *operator {
                    "<" | ">" => operands.push((*operator).to_owned()),
                    "(" => {}
                    _ => {
                        plausible(&operands, closed)?;
                        operands.clear();
                    }
                }
                closed = *operator == ")";
                continue;
            }
            let Some(token) = self.word(Mode::Value)? else {
                return stop("`[[` holds something that is not understood");
            };
            if matches!(self.byte(0), Some(b'(')) {
                return stop("`[[` holds a pattern with parentheses");
            }
            self.compared(&token, last.as_ref(), compares);
            if token.raw != "!" {
                operands.push(token.raw.clone());
            }
            compares = token.known.as_deref().is_some_and(|word| COMPARE.contains(&word));
            let matches = token.raw == "=~";
            if token.known.as_deref() == Some("-v") {
                self.found.unsure("`-v` evaluates the subscript of a variable");
            }
            last = Some(token);
            if matches {
                self.regex()?;
                operands.push(String::new());
            }
        }
    }

    /// Sides of `-eq` and its like are evaluated.
    fn compared(&mut self, token: &Token, last: Option<&Token>, compares: bool) {
        let operator = token.known.as_deref().is_some_and(|word| COMPARE.contains(&word));
        let side = if compares { Some(token) } else { last.filter(|_| operator) };
        let Some(side) = side else { return };
        if side.known.as_deref().is_some_and(super::found::is_number) {
            return;
        }
        let name = side.raw.trim_matches('"').trim_start_matches('$').trim_matches(['{', '}']).to_owned();
        let simple = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(simple) && !name.starts_with(|c: char| c.is_ascii_digit()) {
            self.found.evaluated(&name);
        } else if !matches!(name.as_str(), "#" | "?") {
            self.found.unsure("`[[` evaluates as arithmetic what is not known");
        }
    }

    /// The regular expression behind `=~`, in which parentheses and bars stand for themselves.
    fn regex(&mut self) -> Read<()> {
        self.blanks();
        let mut open = 0_usize;
        let mut spelling = Spelling::new();
        while let Some(byte) = self.byte(0) {
            match byte {
                b'(' => open += 1,
                b')' if open == 0 => return stop("a regular expression with one `)` too many"),
                b')' => open -= 1,
                b'|' => {}
                b' ' | b'\t' | b'\n' if open == 0 => return Ok(()),
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'<' | b'>' => {
                    return stop("a regular expression holds what could end it");
                }
                _ => {
                    self.piece(byte, &mut spelling)?;
                    continue;
                }
            }
            self.pos += 1;
        }
        stop("`[[` is not closed")
    }
}
