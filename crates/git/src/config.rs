//! Git's configuration format: text to settings, and settings back to text.
//!
//! Here: the grammar alone; no file is opened. Elsewhere: which settings are safe and which name programs (`settings`),
//! where the files are (`repository`).
//! Invariants: the parser reads what `git config --list` reads (`git_and_the_parser_agree`); a text that git would refuse
//! is an error here, never a shorter list (`a_broken_text_is_an_error`); what `write` writes is read back as it was
//! (`written_settings_are_read_back`).

/// One setting. Section and key are in small letters; a subsection keeps its letters, as in git.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    pub section: String,
    pub subsection: Option<String>,
    pub key: String,
    /// `None` for a key without `=`, which git reads as true.
    pub value: Option<String>,
}

impl Setting {
    /// The name as `git config` writes it: `remote.origin.url`.
    pub fn name(&self) -> String {
        match &self.subsection {
            Some(subsection) => format!("{}.{subsection}.{}", self.section, self.key),
            None => format!("{}.{}", self.section, self.key),
        }
    }

    pub(crate) fn text(&self) -> &str {
        self.value.as_deref().unwrap_or("true")
    }
}

/// A text that git would refuse, by the number of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadConfig {
    pub line: usize,
}

/// Reads a configuration.
pub fn parse(text: &str) -> Result<Vec<Setting>, BadConfig> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // A carriage return counts only before a line feed.
    let letters: Vec<char> = text.replace("\r\n", "\n").chars().collect();
    let mut parser = Parser { letters, at: 0, line: 1, section: None };
    let mut settings = Vec::new();
    while let Some(letter) = parser.take() {
        match letter {
            '#' | ';' => parser.skip_line(),
            '[' => parser.header()?,
            letter if letter.is_ascii_whitespace() => {}
            letter if letter.is_ascii_alphabetic() => settings.push(parser.setting(letter)?),
            _ => return Err(parser.bad()),
        }
    }
    Ok(settings)
}

struct Parser {
    letters: Vec<char>,
    at: usize,
    line: usize,
    section: Option<(String, Option<String>)>,
}

impl Parser {
    fn take(&mut self) -> Option<char> {
        let letter = self.letters.get(self.at).copied()?;
        self.at += 1;
        if letter == '\n' {
            self.line += 1;
        }
        Some(letter)
    }

    fn next_is(&self, wanted: char) -> bool {
        self.letters.get(self.at) == Some(&wanted)
    }

    fn bad(&self) -> BadConfig {
        BadConfig { line: self.line }
    }

    fn skip_line(&mut self) {
        while self.take().is_some_and(|letter| letter != '\n') {}
    }

    /// After `[`.
    fn header(&mut self) -> Result<(), BadConfig> {
        let mut name = String::new();
        loop {
            match self.take() {
                Some(']') => {
                    // The old form `[section.subsection]` is in small letters.
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
                    let subsection = self.subsection()?;
                    self.section = Some((name, Some(subsection)));
                    return Ok(());
                }
                _ => return Err(self.bad()),
            }
        }
    }

    /// The quoted part of a header and its end.
    fn subsection(&mut self) -> Result<String, BadConfig> {
        let mut letter = self.take();
        while letter.is_some_and(|letter| letter.is_ascii_whitespace() && letter != '\n') {
            letter = self.take();
        }
        if letter != Some('"') {
            return Err(self.bad());
        }
        let mut name = String::new();
        loop {
            match self.take() {
                Some('"') => break,
                Some('\\') => match self.take() {
                    Some('\n') | None => return Err(self.bad()),
                    Some(letter) => name.push(letter),
                },
                Some('\n') | None => return Err(self.bad()),
                Some(letter) => name.push(letter),
            }
        }
        if self.take() == Some(']') { Ok(name) } else { Err(self.bad()) }
    }

    fn setting(&mut self, first: char) -> Result<Setting, BadConfig> {
        let Some((section, subsection)) = self.section.clone() else { return Err(self.bad()) };
        let mut key = String::from(first.to_ascii_lowercase());
        while let Some(letter) = self.letters.get(self.at).copied() {
            if !(letter.is_ascii_alphanumeric() || letter == '-') {
                break;
            }
            key.push(letter.to_ascii_lowercase());
            self.at += 1;
        }
        while self.next_is(' ') || self.next_is('\t') {
            self.at += 1;
        }
        let value = match self.take() {
            None | Some('\n') => None,
            Some('=') => Some(self.value()?),
            Some(_) => return Err(self.bad()),
        };
        Ok(Setting { section, subsection, key, value })
    }

    /// After `=`, to the end of the line.
    fn value(&mut self) -> Result<String, BadConfig> {
        let mut value = String::new();
        // Space inside a value counts, space around it does not.
        let mut space = String::new();
        let (mut is_quoted, mut is_comment) = (false, false);
        loop {
            let letter = match self.take() {
                None | Some('\n') if is_quoted => return Err(self.bad()),
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
                '\\' => match self.take() {
                    Some('\n') => {}
                    Some('t') => value.push('\t'),
                    Some('b') => value.push('\u{8}'),
                    Some('n') => value.push('\n'),
                    Some(letter @ ('\\' | '"')) => value.push(letter),
                    _ => return Err(self.bad()),
                },
                '"' => is_quoted = !is_quoted,
                letter => value.push(letter),
            }
        }
    }
}

/// Settings as a text that git and `parse` read back.
pub fn write(settings: &[Setting]) -> String {
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
