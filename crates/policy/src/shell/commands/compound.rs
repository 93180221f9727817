//! Compound commands: groups, subshells, `if`, loops, `case`, `[[ ]]`, `(( ))`, functions, `coproc`.

use super::super::commands::simple::SimpleCommand;
use super::super::parse::{ParseResult, ShellParser, parse_error};
use super::super::words::word::{WordBuilder, WordMode, WordToken};
use super::super::{ShellCommand, ShellWord};

/// Checks that the words between `&&`, `||` and parentheses of `[[ ]]` can be one test.
fn check_test_operands(operands: &[String], closed: bool) -> ParseResult<()> {
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
        _ => parse_error("syntax: `[[` contains words that are not a test"),
    }
}

/// Operators of `[[ ]]` that evaluate both sides as arithmetic.
const ARITHMETIC_OPERATORS: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

impl ShellParser<'_, '_> {
    /// Parses one command of a pipeline.
    pub(in crate::shell) fn parse_command(&mut self) -> ParseResult<()> {
        self.cursor.skip_blanks();
        self.substitution.commands += 1;
        let word = match self.cursor.peek_byte(0) {
            Some(b'(') if self.cursor.peek_byte(1) == Some(b'(') => {
                self.cursor.pos += 2;
                self.parse_arithmetic("))")?;
                return self.parse_redirections();
            }
            Some(b'(') => "(",
            _ => match self.cursor.reserved_word() {
                Some("if") => "if",
                Some("while" | "until") => "while",
                Some("for" | "select") => "for",
                Some("case") => "case",
                Some("{") => "{",
                Some("[[") => "[[",
                Some("function") => "function",
                Some("coproc") => "coproc",
                Some("!") => return parse_error("`!` is not at the start of a pipeline"),
                Some("time") => return parse_error("`time` is not at the start of a pipeline"),
                None => return self.parse_simple(),
                Some(other) => return parse_error(format!("syntax: unexpected `{other}`")),
            },
        };
        if word == "function" {
            return self.parse_function_keyword();
        }
        if word == "coproc" {
            return self.parse_coproc();
        }
        self.parse_compound(word)?;
        self.parse_redirections()
    }

    fn parse_compound(&mut self, word: &str) -> ParseResult<()> {
        self.piped_text = None;
        if self.nesting >= super::super::MAX_NESTING {
            return parse_error(format!(
                "parts of the line are nested more than {} deep",
                super::super::MAX_NESTING
            ));
        }
        self.nesting += 1;
        match word {
            "(" => self.parse_subshell()?,
            "if" => self.parse_if()?,
            "while" => self.parse_while()?,
            "for" => self.parse_for()?,
            "case" => self.parse_case()?,
            "{" => {
                self.cursor.pos += 1;
                self.parse_nonempty_list()?;
                self.expect_reserved("}")?;
            }
            _ => self.parse_condition()?,
        }
        self.nesting -= 1;
        Ok(())
    }

    /// Parses the redirections after a compound command.
    fn parse_redirections(&mut self) -> ParseResult<()> {
        let mut simple = SimpleCommand::default();
        loop {
            self.cursor.skip_blanks();
            if !self.parse_redirection(&mut simple)? {
                return Ok(());
            }
        }
    }

    fn parse_subshell(&mut self) -> ParseResult<()> {
        self.cursor.pos += 1;
        self.enclosing.push("( )".to_owned());
        self.parse_nonempty_list()?;
        if self.cursor.peek_byte(0) != Some(b')') {
            return parse_error("syntax: `(` is not closed");
        }
        self.cursor.pos += 1;
        self.enclosing.pop();
        Ok(())
    }

    fn parse_if(&mut self) -> ParseResult<()> {
        self.expect_reserved("if")?;
        self.parse_nonempty_list()?;
        self.expect_reserved("then")?;
        self.parse_nonempty_list()?;
        while self.cursor.at_reserved_word("elif") {
            self.expect_reserved("elif")?;
            self.parse_nonempty_list()?;
            self.expect_reserved("then")?;
            self.parse_nonempty_list()?;
        }
        if self.cursor.at_reserved_word("else") {
            self.expect_reserved("else")?;
            self.parse_nonempty_list()?;
        }
        self.expect_reserved("fi")
    }

    fn parse_while(&mut self) -> ParseResult<()> {
        self.cursor.pos += 5;
        self.parse_nonempty_list()?;
        self.parse_do_body()
    }

    /// Parses `do … done`.
    fn parse_do_body(&mut self) -> ParseResult<()> {
        self.expect_reserved("do")?;
        self.parse_nonempty_list()?;
        self.expect_reserved("done")
    }

    fn parse_for(&mut self) -> ParseResult<()> {
        let selects = self.cursor.at_reserved_word("select");
        self.cursor.pos += if selects { 6 } else { 3 };
        self.cursor.skip_blanks();
        if !selects && self.cursor.starts_with("((") {
            return self.parse_counting_for();
        }
        let Some(variable) = self.parse_word(WordMode::Value)? else {
            return parse_error("syntax: `for` without a variable");
        };
        let Some(variable) = variable.known.filter(|_| variable.plain) else {
            return parse_error("`for` with a variable that is not a plain name");
        };
        self.skip_newlines()?;
        let mut values = Vec::new();
        if self.cursor.at_reserved_word("in") {
            self.cursor.pos += 2;
            while let Some(token) = {
                self.cursor.skip_blanks();
                self.parse_word(WordMode::Plain)?
            } {
                if token.raw == "esac" {
                    return parse_error("`esac` as a word of `for`");
                }
                values.extend(token.into_words());
            }
        } else {
            values.push(ShellWord::any_value("$@"));
        }
        for value in &values {
            self.findings.assign_variable(&variable, value, false);
        }
        if selects {
            self.findings.assign_variable(&variable, &ShellWord::any_value(""), false);
        }
        self.cursor.skip_blanks();
        if self.cursor.peek_byte(0) == Some(b';') && self.cursor.peek_byte(1) != Some(b';') {
            self.cursor.pos += 1;
        }
        self.skip_newlines()?;
        self.parse_loop_body()
    }

    fn parse_loop_body(&mut self) -> ParseResult<()> {
        if self.cursor.at_reserved_word("{") {
            self.cursor.pos += 1;
            self.parse_nonempty_list()?;
            return self.expect_reserved("}");
        }
        self.parse_do_body()
    }

    /// Parses `for (( a; b; c ))`.
    fn parse_counting_for(&mut self) -> ParseResult<()> {
        self.cursor.pos += 2;
        self.parse_arithmetic(";")?;
        self.parse_arithmetic(";")?;
        self.parse_arithmetic("))")?;
        self.cursor.skip_blanks();
        if self.cursor.peek_byte(0) == Some(b';') {
            self.cursor.pos += 1;
        }
        self.skip_newlines()?;
        self.parse_loop_body()
    }

    fn parse_case(&mut self) -> ParseResult<()> {
        self.expect_reserved("case")?;
        if self.parse_word(WordMode::Value)?.is_none() {
            return parse_error("syntax: `case` without a word");
        }
        self.skip_newlines()?;
        self.expect_reserved("in")?;
        loop {
            self.skip_newlines()?;
            if self.cursor.at_reserved_word("esac") {
                return self.expect_reserved("esac");
            }
            if self.cursor.peek_byte(0) == Some(b'(') {
                self.cursor.pos += 1;
            }
            loop {
                if self.parse_word(WordMode::Plain)?.is_none() {
                    return parse_error("syntax: a pattern of `case` is missing");
                }
                self.cursor.skip_blanks();
                match self.cursor.peek_byte(0) {
                    Some(b'|') => self.cursor.pos += 1,
                    Some(b')') => break,
                    _ => return parse_error("syntax: a pattern of `case` is not closed"),
                }
            }
            self.cursor.pos += 1;
            self.parse_list()?;
            self.cursor.skip_blanks();
            match [";;&", ";;", ";&"].iter().find(|end| self.cursor.starts_with(end)) {
                Some(end) => self.cursor.pos += end.len(),
                None => return self.expect_reserved("esac"),
            }
        }
    }

    /// Parses `function name [()] body`.
    fn parse_function_keyword(&mut self) -> ParseResult<()> {
        self.cursor.pos += "function".len();
        self.cursor.skip_blanks();
        let Some(token) = self.parse_word(WordMode::Plain)? else {
            return parse_error("syntax: a function without a name");
        };
        self.cursor.skip_blanks();
        if self.cursor.peek_byte(0) == Some(b'(') {
            return self.parse_function(token);
        }
        self.parse_function_body(token)
    }

    /// Parses `()` and the body after the name of a function.
    pub(in crate::shell) fn parse_function(&mut self, name: WordToken) -> ParseResult<()> {
        self.cursor.pos += 1;
        self.cursor.skip_blanks();
        if self.cursor.peek_byte(0) != Some(b')') {
            return parse_error("syntax: unexpected `(`");
        }
        self.cursor.pos += 1;
        self.parse_function_body(name)
    }

    fn parse_function_body(&mut self, name: WordToken) -> ParseResult<()> {
        let Some(name) = name.known else { return parse_error("the name of a function is unknown") };
        self.skip_newlines()?;
        let opens = self.cursor.peek_byte(0) == Some(b'(');
        let compound = matches!(
            self.cursor.reserved_word(),
            Some("{" | "if" | "while" | "until" | "for" | "select" | "case" | "[[")
        );
        if !opens && !compound {
            return parse_error(format!("the body of function `{name}` is not a group"));
        }
        self.findings.add_function(&name);
        self.enclosing.push(format!("function {name}"));
        self.parse_command()?;
        self.enclosing.pop();
        Ok(())
    }

    /// Parses `coproc [NAME] command`.
    fn parse_coproc(&mut self) -> ParseResult<()> {
        self.note_command_start(self.cursor.pos);
        self.findings.mark_uncertain(
            "`coproc` runs a command concurrently and connects its input and output to variables",
        );
        self.cursor.pos += "coproc".len();
        let words = vec![ShellWord::Known("coproc".to_owned())];
        self.emit_command(ShellCommand {
            words,
            enclosing: self.enclosing.clone(),
            ..ShellCommand::default()
        })?;
        self.cursor.skip_blanks();
        let start = self.cursor.pos;
        self.parse_name();
        self.cursor.skip_blanks();
        let grouped = self.cursor.peek_byte(0) == Some(b'(')
            || matches!(
                self.cursor.reserved_word(),
                Some("{" | "if" | "while" | "until" | "for" | "select" | "case" | "[[")
            );
        if !grouped {
            self.cursor.pos = start;
        }
        self.enclosing.push("coproc".to_owned());
        self.parse_command()?;
        self.enclosing.pop();
        Ok(())
    }

    /// Parses `[[ … ]]`. It runs no command itself, but its words may.
    fn parse_condition(&mut self) -> ParseResult<()> {
        self.cursor.pos += 2;
        let mut last: Option<WordToken> = None;
        let mut compares = false;
        let mut operands = Vec::new();
        let mut closed = false;
        loop {
            self.skip_newlines()?;
            if self.cursor.starts_with("]]")
                && self.cursor.peek_byte(2).is_none_or(|b| b" \t\n;&|)<>".contains(&b))
            {
                self.cursor.pos += 2;
                return check_test_operands(&operands, closed);
            }
            if let Some(operator) =
                ["&&", "||", "(", ")", "<", ">"].iter().find(|o| self.cursor.starts_with(o))
                && !self.cursor.starts_with("<(")
                && !self.cursor.starts_with(">(")
            {
                self.cursor.pos += operator.len();
                (last, compares) = (None, false);
                match *operator {
                    "<" | ">" => operands.push((*operator).to_owned()),
                    "(" => {}
                    _ => {
                        check_test_operands(&operands, closed)?;
                        operands.clear();
                    }
                }
                closed = *operator == ")";
                continue;
            }
            let Some(token) = self.parse_word(WordMode::Value)? else {
                return parse_error("`[[` contains unknown syntax");
            };
            if matches!(self.cursor.peek_byte(0), Some(b'(')) {
                return parse_error("`[[` contains a pattern with parentheses");
            }
            self.note_comparison(&token, last.as_ref(), compares);
            if token.raw != "!" {
                operands.push(token.raw.clone());
            }
            compares = token.known.as_deref().is_some_and(|word| ARITHMETIC_OPERATORS.contains(&word));
            let matches = token.raw == "=~";
            if token.known.as_deref() == Some("-v") {
                self.findings.mark_uncertain("`-v` evaluates the subscript of a variable");
            }
            last = Some(token);
            if matches {
                self.parse_regex()?;
                operands.push(String::new());
            }
        }
    }

    /// Records the operands of `-eq` and similar operators, which are evaluated.
    fn note_comparison(&mut self, token: &WordToken, last: Option<&WordToken>, compares: bool) {
        let operator = token.known.as_deref().is_some_and(|word| ARITHMETIC_OPERATORS.contains(&word));
        let side = if compares { Some(token) } else { last.filter(|_| operator) };
        let Some(side) = side else { return };
        if side.known.as_deref().is_some_and(super::super::findings::is_number) {
            return;
        }
        let name = side.raw.trim_matches('"').trim_start_matches('$').trim_matches(['{', '}']).to_owned();
        let simple = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(simple) && !name.starts_with(|c: char| c.is_ascii_digit()) {
            self.findings.add_evaluated(&name);
        } else if !matches!(name.as_str(), "#" | "?") {
            self.findings.mark_uncertain("`[[` evaluates an unknown value as arithmetic");
        }
    }

    /// Parses the regular expression after `=~`, in which parentheses and bars are literal.
    fn parse_regex(&mut self) -> ParseResult<()> {
        self.cursor.skip_blanks();
        let mut open = 0_usize;
        let mut spelling = WordBuilder::new();
        while let Some(byte) = self.cursor.peek_byte(0) {
            match byte {
                b'(' => open += 1,
                b')' if open == 0 => return parse_error("a regular expression with one `)` too many"),
                b')' => open -= 1,
                b'|' => {}
                b' ' | b'\t' | b'\n' if open == 0 => return Ok(()),
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'<' | b'>' => {
                    return parse_error("a regular expression contains a character that could end it");
                }
                _ => {
                    self.parse_piece(byte, &mut spelling)?;
                    continue;
                }
            }
            self.cursor.pos += 1;
        }
        parse_error("`[[` is not closed")
    }
}
