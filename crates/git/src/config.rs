//! Parses and writes git's configuration format.
//!
//! Here: the grammar only; no file is opened. Elsewhere: which settings are safe and which name programs (`settings`),
//! where the files are (`repository`).
//! Invariants: the parser returns the same settings as `git config --list` (`git_and_the_parser_agree`); a text that
//! git rejects is an error (`a_broken_text_is_an_error`); parsing the output of `format_config` returns the same
//! settings (`written_settings_are_read_back`).

/// One setting. Section and key are in lower case; a subsection keeps its case, as in git.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitSetting {
    pub section: String,
    pub subsection: Option<String>,
    pub key: String,
    /// `None` for a key without `=`, which git reads as true.
    pub value: Option<String>,
}

impl GitSetting {
    /// Returns the name as `git config` prints it: `remote.origin.url`.
    pub fn full_name(&self) -> String {
        match &self.subsection {
            Some(subsection) => format!("{}.{subsection}.{}", self.section, self.key),
            None => format!("{}.{}", self.section, self.key),
        }
    }

    pub(crate) fn value_text(&self) -> &str {
        self.value.as_deref().unwrap_or("true")
    }
}

/// The error for a text that git rejects, with the line number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigSyntaxError {
    pub line: usize,
}

/// Parses a configuration.
pub fn parse_config(text: &str) -> Result<Vec<GitSetting>, ConfigSyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // A carriage return is significant only before a line feed.
    let chars: Vec<char> = text.replace("\r\n", "\n").chars().collect();
    let mut parser = ConfigParser { chars, position: 0, line: 1, section: None };
    let mut settings = Vec::new();
    while let Some(letter) = parser.next_char() {
        match letter {
            '#' | ';' => parser.skip_line(),
            '[' => parser.parse_header()?,
            letter if letter.is_ascii_whitespace() => {}
            letter if letter.is_ascii_alphabetic() => settings.push(parser.parse_setting(letter)?),
            _ => return Err(parser.syntax_error()),
        }
    }
    Ok(settings)
}

struct ConfigParser {
    chars: Vec<char>,
    position: usize,
    line: usize,
    section: Option<(String, Option<String>)>,
}

impl ConfigParser {
    fn next_char(&mut self) -> Option<char> {
        let letter = self.chars.get(self.position).copied()?;
        self.position += 1;
        if letter == '\n' {
            self.line += 1;
        }
        Some(letter)
    }

    fn next_is(&self, wanted: char) -> bool {
        self.chars.get(self.position) == Some(&wanted)
    }

    fn syntax_error(&self) -> ConfigSyntaxError {
        ConfigSyntaxError { line: self.line }
    }

    fn skip_line(&mut self) {
        while self.next_char().is_some_and(|letter| letter != '\n') {}
    }

    /// Parses a header after `[`.
    fn parse_header(&mut self) -> Result<(), ConfigSyntaxError> {
        let mut name = String::new();
        loop {
            match self.next_char() {
                Some(']') => {
                    // The old form `[section.subsection]` is in lower case.
                    let section = match name.split_once('.') {
                        Some((section, below)) => (section.to_owned(), Some(below.to_owned())),
                        None => (name, None),
                    };
                    self.section = Some(section);
                    return Ok(());
                }
                Some(letter) if letter.is_ascii_alphanumeric() || letter == '-' || letter == '.' => {
                    name.push(letter.to_ascii_lowercase());
                }
                Some(letter) if letter.is_ascii_whitespace() && letter != '\n' => {
                    let subsection = self.parse_subsection()?;
                    self.section = Some((name, Some(subsection)));
                    return Ok(());
                }
                _ => return Err(self.syntax_error()),
            }
        }
    }

    /// Parses the quoted part of a header and its end.
    fn parse_subsection(&mut self) -> Result<String, ConfigSyntaxError> {
        let mut letter = self.next_char();
        while letter.is_some_and(|letter| letter.is_ascii_whitespace() && letter != '\n') {
            letter = self.next_char();
        }
        if letter != Some('"') {
            return Err(self.syntax_error());
        }
        let mut name = String::new();
        loop {
            match self.next_char() {
                Some('"') => break,
                Some('\\') => match self.next_char() {
                    Some('\n') | None => return Err(self.syntax_error()),
                    Some(letter) => name.push(letter),
                },
                Some('\n') | None => return Err(self.syntax_error()),
                Some(letter) => name.push(letter),
            }
        }
        if self.next_char() == Some(']') { Ok(name) } else { Err(self.syntax_error()) }
    }

    fn parse_setting(&mut self, first: char) -> Result<GitSetting, ConfigSyntaxError> {
        let Some((section, subsection)) = self.section.clone() else { return Err(self.syntax_error()) };
        let mut key = String::from(first.to_ascii_lowercase());
        while let Some(letter) = self.chars.get(self.position).copied() {
            if !(letter.is_ascii_alphanumeric() || letter == '-') {
                break;
            }
            key.push(letter.to_ascii_lowercase());
            self.position += 1;
        }
        while self.next_is(' ') || self.next_is('\t') {
            self.position += 1;
        }
        let value = match self.next_char() {
            None | Some('\n') => None,
            Some('=') => Some(self.parse_value()?),
            Some(_) => return Err(self.syntax_error()),
        };
        Ok(GitSetting { section, subsection, key, value })
    }

    /// Parses the value after `=`, to the end of the line.
    fn parse_value(&mut self) -> Result<String, ConfigSyntaxError> {
        let mut value = String::new();
        // Space inside a value counts, space around it does not.
        let mut space = String::new();
        let (mut is_quoted, mut is_comment) = (false, false);
        loop {
            let letter = match self.next_char() {
                None | Some('\n') if is_quoted => return Err(self.syntax_error()),
                None | Some('\n') => return Ok(value),
                Some(letter) => letter,
            };
            if is_comment {
                continue;
            }
            if letter.is_ascii_whitespace() && !is_quoted {
                if !value.is_empty() {
                    space.push(letter);
                }
                continue;
            }
            if !is_quoted && (letter == '#' || letter == ';') {
                is_comment = true;
                continue;
            }
            value.push_str(&std::mem::take(&mut space));
            match letter {
                '\\' => match self.next_char() {
                    Some('\n') => {}
                    Some('t') => value.push('\t'),
                    Some('b') => value.push('\u{8}'),
                    Some('n') => value.push('\n'),
                    Some(letter @ ('\\' | '"')) => value.push(letter),
                    _ => return Err(self.syntax_error()),
                },
                '"' => is_quoted = !is_quoted,
                letter => value.push(letter),
            }
        }
    }
}

/// Formats settings as a text that git and `parse_config` can read.
pub fn format_config(settings: &[GitSetting]) -> String {
    let mut text = String::new();
    let mut last: Option<(&str, Option<&str>)> = None;
    for setting in settings {
        let section = (setting.section.as_str(), setting.subsection.as_deref());
        if last != Some(section) {
            match section.1 {
                Some(subsection) => {
                    let quoted = subsection.replace('\\', "\\\\").replace('"', "\\\"");
                    text.push_str(&format!("[{} \"{quoted}\"]\n", section.0));
                }
                None => text.push_str(&format!("[{}]\n", section.0)),
            }
            last = Some(section);
        }
        match &setting.value {
            None => text.push_str(&format!("\t{}\n", setting.key)),
            Some(value) => {
                let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                let escaped = escaped.replace('\t', "\\t").replace('\u{8}', "\\b");
                text.push_str(&format!("\t{} = \"{escaped}\"\n", setting.key));
            }
        }
    }
    text
}
