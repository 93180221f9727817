//! Front matter: a few lines of YAML at the head of a Markdown file.
//!
//! Supports a small part of YAML: one level of keys with a text (plain, quoted, or a block after `|` or `>`), a list of
//! texts, or a table of texts. Anchors, tags and multiple documents are not supported, so that nothing can expand
//! during parsing.
//! Invariant: parsing any text ends with a result or an error, in linear time and memory
//! (`hostile_front_matter_is_refused`).

/// The longest front matter.
const MAX_FRONT_BYTES: usize = 16 * 1024;
/// The most keys, and the most entries of a list or table.
const MAX_KEYS: usize = 64;
const MAX_ENTRIES: usize = 256;

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FrontMatterValue {
    Text(String),
    List(Vec<String>),
    Table(Vec<(String, String)>),
}

/// The front matter of a file, and the text after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FrontMatter {
    keys: Vec<(String, FrontMatterValue)>,
    pub(crate) body: String,
}

impl FrontMatter {
    pub(crate) fn get(&self, key: &str) -> Option<&FrontMatterValue> {
        self.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn key_names(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(name, _)| name.as_str())
    }

    /// Returns a text; `None` if the key is missing.
    pub(crate) fn text_value(&self, key: &str) -> Result<Option<&str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(FrontMatterValue::Text(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{key}` is not a text")),
        }
    }

    pub(crate) fn flag_value(&self, key: &str, absent: bool) -> Result<bool, String> {
        match self.text_value(key)? {
            None => Ok(absent),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(format!("`{key}` is `{}`: give true or false", shorten_text(other))),
        }
    }

    pub(crate) fn list_value(&self, key: &str) -> Result<Vec<String>, String> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(FrontMatterValue::List(list)) => Ok(list.clone()),
            Some(FrontMatterValue::Text(text)) if text.is_empty() => Ok(Vec::new()),
            Some(_) => Err(format!("`{key}` is not a list")),
        }
    }
}

/// Parses a file. `None` if it does not begin with front matter.
pub(crate) fn parse_front_matter(text: &str) -> Result<Option<FrontMatter>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = LineCursor { rest: text, number: 0 };
    if lines.next_line().is_none_or(|line| line.trim_end() != "---") {
        return Ok(None);
    }
    let mut head: Vec<(usize, &str)> = Vec::new();
    let mut bytes = 0;
    loop {
        let Some(line) = lines.next_line() else {
            return Err("its front matter has no end: a line with `---` is missing".to_owned());
        };
        let line = line.trim_end();
        if line == "---" || line == "..." {
            break;
        }
        bytes += line.len() + 1;
        if bytes > MAX_FRONT_BYTES {
            return Err(format!("its front matter has more than {MAX_FRONT_BYTES} bytes"));
        }
        head.push((lines.number, line));
    }
    let body = lines.rest.trim_start_matches(['\r', '\n']).to_owned();
    Ok(Some(FrontMatter { keys: parse_keys(&head)?, body }))
}

struct LineCursor<'t> {
    rest: &'t str,
    number: usize,
}

impl<'t> LineCursor<'t> {
    fn next_line(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        Some(line)
    }
}

fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

fn parse_keys(head: &[(usize, &str)]) -> Result<Vec<(String, FrontMatterValue)>, String> {
    let mut keys: Vec<(String, FrontMatterValue)> = Vec::new();
    let mut at = 0;
    while let Some((number, line)) = head.get(at) {
        at += 1;
        if is_blank(line) {
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {why}");
        if line.starts_with([' ', '\t']) {
            return Err(wrong("it is indented, but no key precedes it"));
        }
        let Some((key, value)) = split_pair(line) else { return Err(wrong("`key: value` is expected")) };
        // Indented lines, and list entries without indentation, belong to the key above.
        let mut end = at;
        while let Some((_, next)) = head.get(end) {
            let belongs =
                next.is_empty() || next.starts_with([' ', '\t']) || *next == "-" || next.starts_with("- ");
            if !belongs {
                break;
            }
            end += 1;
        }
        let below: Vec<&str> = head.get(at..end).unwrap_or_default().iter().map(|(_, line)| *line).collect();
        at = end;
        let value = parse_value(value, &below).map_err(|why| wrong(&format!("`{key}`: {why}")))?;
        if keys.iter().any(|(name, _)| *name == key) {
            return Err(wrong(&format!("the key `{}` appears twice", shorten_text(&key))));
        }
        if keys.len() == MAX_KEYS {
            return Err(wrong(&format!("there are more than {MAX_KEYS} keys")));
        }
        keys.push((key, value));
    }
    Ok(keys)
}

/// Splits a line into a key and the text after its colon.
fn split_pair(line: &str) -> Option<(String, &str)> {
    let (key, value) = match line.split_once(": ") {
        Some((key, value)) => (key, value.trim()),
        None => (line.trim_end().strip_suffix(':')?, ""),
    };
    let key = key.trim();
    let key = unquote_text(key).unwrap_or_else(|| key.to_owned());
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '/');
    (!key.is_empty() && key.chars().all(plain)).then_some((key, value))
}

fn parse_value(value: &str, below: &[&str]) -> Result<FrontMatterValue, String> {
    if let Some(style) = value.strip_prefix(['|', '>'])
        && style.trim_start_matches(['-', '+']).is_empty()
    {
        return Ok(FrontMatterValue::Text(parse_block(below, value.starts_with('>'), style.contains('-'))));
    }
    if value.starts_with('[') {
        let flow: String = std::iter::once(value).chain(below.iter().map(|line| line.trim())).collect();
        return parse_flow_list(&flow).map(FrontMatterValue::List);
    }
    if value.is_empty() || value.starts_with('#') {
        let mut lines = below.iter().filter(|line| !is_blank(line)).peekable();
        let first = lines.peek().map_or("", |line| line.trim_start());
        if first.is_empty() {
            return Ok(FrontMatterValue::Text(String::new()));
        }
        if first == "-" || first.starts_with("- ") {
            return parse_block_list(lines.copied()).map(FrontMatterValue::List);
        }
        return match split_pair(first) {
            Some(_) => parse_table(lines.copied()).map(FrontMatterValue::Table),
            None => parse_scalar(&parse_folded("", below)).map(FrontMatterValue::Text),
        };
    }
    if value.starts_with('{') {
        return Err("a table needs one indented line per entry".to_owned());
    }
    parse_scalar(&parse_folded(value, below)).map(FrontMatterValue::Text)
}

/// Returns a text that continues on the following lines.
fn parse_folded(value: &str, below: &[&str]) -> String {
    let mut text = value.to_owned();
    for line in below.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(line);
    }
    text
}

fn parse_block(below: &[&str], folds: bool, strips: bool) -> String {
    let indent = |line: &&str| line.len() - line.trim_start_matches(' ').len();
    let least = below.iter().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let mut text = String::new();
    for line in below {
        let line = line.get(least..).unwrap_or_default();
        if folds && !line.is_empty() && !text.is_empty() && !text.ends_with('\n') {
            text.push(' ');
        }
        text.push_str(line);
        if !folds || line.is_empty() {
            text.push('\n');
        }
    }
    let end = text.trim_end().len();
    text.truncate(end);
    if !strips && !text.is_empty() {
        text.push('\n');
    }
    text
}

fn parse_block_list<'t>(lines: impl Iterator<Item = &'t str>) -> Result<Vec<String>, String> {
    let mut list = Vec::new();
    for line in lines {
        let Some(entry) = line.trim_start().strip_prefix('-') else {
            return Err("an entry of a list begins with `-`".to_owned());
        };
        let entry = entry.trim();
        if entry.is_empty() || (split_pair(entry).is_some() && unquote_text(entry).is_none()) {
            return Err("its entries are not texts".to_owned());
        }
        push_entry(&mut list, parse_scalar(entry)?)?;
    }
    Ok(list)
}

fn parse_table<'t>(lines: impl Iterator<Item = &'t str>) -> Result<Vec<(String, String)>, String> {
    let mut table = Vec::new();
    for line in lines {
        let Some((key, value)) = split_pair(line.trim_start()) else {
            return Err("it is neither a text nor a table of texts".to_owned());
        };
        if table.len() == MAX_ENTRIES {
            return Err(format!("it has more than {MAX_ENTRIES} entries"));
        }
        table.push((key, parse_scalar(value)?));
    }
    Ok(table)
}

fn parse_flow_list(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim_end();
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inside = inside.ok_or("the closing `]` of the list is missing")?;
    let mut list = Vec::new();
    let mut rest = inside.trim();
    while !rest.is_empty() {
        let end = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let close = rest.char_indices().skip(1).find(|(_, c)| *c == quote);
                let (close, _) = close.ok_or("a quotation mark is missing")?;
                let behind = rest.get(close..).unwrap_or_default();
                close + behind.find(',').unwrap_or(behind.len())
            }
            _ => rest.find(',').unwrap_or(rest.len()),
        };
        let entry = rest.get(..end).unwrap_or_default().trim();
        if entry.contains(['[', ']', '{', '}']) && unquote_text(entry).is_none() {
            return Err("its entries are not texts".to_owned());
        }
        if !entry.is_empty() {
            push_entry(&mut list, parse_scalar(entry)?)?;
        }
        rest = rest.get(end + 1..).unwrap_or_default().trim_start();
    }
    Ok(list)
}

fn push_entry(list: &mut Vec<String>, entry: String) -> Result<(), String> {
    if list.len() == MAX_ENTRIES {
        return Err(format!("it has more than {MAX_ENTRIES} entries"));
    }
    list.push(entry);
    Ok(())
}

/// Parses a text on one line.
fn parse_scalar(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.starts_with(['"', '\'']) {
        let bare = match text.rfind(" #") {
            Some(comment) if unquote_text(text).is_none() => {
                text.get(..comment).unwrap_or_default().trim_end()
            }
            _ => text,
        };
        return unquote_text(bare).ok_or_else(|| "a quotation mark is missing".to_owned());
    }
    if text.starts_with(['&', '*', '!']) {
        return Err(
            "anchors, aliases and tags are not supported; put the text into quotation marks".to_owned()
        );
    }
    let text = if text.starts_with('#') { "" } else { text };
    let end = text.find(" #").unwrap_or(text.len());
    Ok(text.get(..end).unwrap_or_default().trim_end().to_owned())
}

/// Parses a quoted text.
fn unquote_text(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inside = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut out = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            ('\'', '\'') => out.push(chars.next().filter(|c| *c == '\'')?),
            ('"', '"') => return None,
            ('"', '\\') => out.push(match chars.next()? {
                'n' => '\n',
                't' => '\t',
                c @ ('"' | '\\' | '/') => c,
                _ => return None,
            }),
            (_, c) => out.push(c),
        }
    }
    Some(out)
}

/// Shortens a text for an error message.
pub(crate) fn shorten_text(text: &str) -> String {
    minke_config::trust::sanitize_bytes(text.as_bytes(), 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> FrontMatter {
        parse_front_matter(text).unwrap().unwrap()
    }

    #[test]
    fn what_people_write_is_understood() {
        let text = "---\nname: pdf-tools\ndescription: Reads PDF files: forms, too. # not this\nlicense: \"MIT # all of it\"\n\
                    # a comment\nallowed-tools: Bash(git:*) Read\nmetadata:\n  author: somebody\n  version: '1.0'\nrequires: [one, \"two\"]\n\
                    more:\n- three\n- 'four, five'\nlong: >-\n  first line\n  second line\n\n  after\nkept: |\n  a\n    b\ncarried:\n  on the\n  next lines\nend: it goes\n  on\n---\n\n# Body\n---\n";
        let front = parse_text(text);
        assert_eq!(front.text_value("name").unwrap(), Some("pdf-tools"));
        assert_eq!(front.text_value("description").unwrap(), Some("Reads PDF files: forms, too."));
        assert_eq!(front.text_value("license").unwrap(), Some("MIT # all of it"));
        assert_eq!(front.text_value("allowed-tools").unwrap(), Some("Bash(git:*) Read"));
        let table =
            vec![("author".to_owned(), "somebody".to_owned()), ("version".to_owned(), "1.0".to_owned())];
        assert_eq!(front.get("metadata"), Some(&FrontMatterValue::Table(table)));
        assert_eq!(front.list_value("requires").unwrap(), ["one", "two"]);
        assert_eq!(front.list_value("more").unwrap(), ["three", "four, five"]);
        assert_eq!(front.text_value("long").unwrap(), Some("first line second line\nafter"));
        assert_eq!(front.text_value("kept").unwrap(), Some("a\n  b\n"));
        assert_eq!(front.text_value("carried").unwrap(), Some("on the next lines"));
        assert_eq!(front.text_value("end").unwrap(), Some("it goes on"));
        assert_eq!(front.body, "# Body\n---\n");
        assert_eq!(parse_front_matter("# no front matter\n").unwrap(), None);
        let crlf = parse_front_matter("---\r\nname: x\r\n---\r\nbody\r\n").unwrap().unwrap();
        assert_eq!((crlf.text_value("name").unwrap(), crlf.body.as_str()), (Some("x"), "body\r\n"));
        assert!(parse_flag("yes").is_err() && parse_flag("true").unwrap());
    }

    fn parse_flag(word: &str) -> Result<bool, String> {
        parse_text(&format!("---\nflag: {word}\n---\n")).flag_value("flag", false)
    }

    #[test]
    fn hostile_front_matter_is_refused() {
        let bomb = "---\na: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: [*b, *b, *b]\n---\n";
        let endless = format!("---\nname: {}\n---\n", "x".repeat(10 * 1024 * 1024));
        let keys: String = (0..200).map(|n| format!("k{n}: 1\n")).collect();
        let deep = format!("---\na: {}\n---\n", "[".repeat(8_000));
        let wide = format!("---\na: [{}]\n---\n", "x,".repeat(4_000));
        for bad in [
            bomb,
            endless.as_str(),
            &format!("---\n{keys}---\n"),
            &deep,
            &wide,
            "---\nname: x\n",
            "---\n  name: x\n---\n",
            "---\nname\n---\n",
            "---\nname: x\nname: y\n---\n",
            "---\nname: \"x\n---\n",
            "---\nname: !!python/object x\n---\n",
            "---\nname: *anchor\n---\n",
            "---\nlist: [a\n---\n",
            "---\nlist:\n  - a: b\n---\n",
            "---\ntable: {a: b}\n---\n",
            "---\nlist: [\"a, b]\n---\n",
            "---\n\0: x\n---\n",
        ] {
            let why = parse_front_matter(bad).unwrap_err();
            assert!(why.len() < 300, "{why}");
        }
    }
}
