//! Front matter: the few lines of YAML at the head of a Markdown file.
//!
//! Only what people write there is understood: one level of keys, with a text (plain, quoted, or a block behind `|` or
//! `>`), a list of texts, or a table of texts. There are no anchors, tags or documents in it, so that nothing can grow
//! while it is read.
//! Invariant: whatever stands there, reading ends with what was written or with a reason, in time and memory that grow
//! with the text and no faster (`hostile_front_matter_is_refused`).

/// The longest front matter.
const FRONT_BYTES: usize = 16 * 1024;
/// The most keys, and entries of one.
const KEYS: usize = 64;
const ENTRIES: usize = 256;

/// What a key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    List(Vec<String>),
    Table(Vec<(String, String)>),
}

/// The head of a file, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Front {
    keys: Vec<(String, Value)>,
    pub(crate) body: String,
}

impl Front {
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(name, _)| name.as_str())
    }

    /// A text; `None` if the key is not there.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{key}` is not a text")),
        }
    }

    pub(crate) fn flag(&self, key: &str, absent: bool) -> Result<bool, String> {
        match self.text(key)? {
            None => Ok(absent),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(format!("`{key}` is `{}`: give true or false", short(other))),
        }
    }

    pub(crate) fn list(&self, key: &str) -> Result<Vec<String>, String> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::List(list)) => Ok(list.clone()),
            Some(Value::Text(text)) if text.is_empty() => Ok(Vec::new()),
            Some(_) => Err(format!("`{key}` is not a list")),
        }
    }
}

/// Takes a file apart. `None` if it does not begin with front matter.
pub(crate) fn read(text: &str) -> Result<Option<Front>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Lines { rest: text, number: 0 };
    if lines.next().is_none_or(|line| line.trim_end() != "---") {
        return Ok(None);
    }
    let mut head: Vec<(usize, &str)> = Vec::new();
    let mut bytes = 0;
    loop {
        let Some(line) = lines.next() else {
            return Err("its front matter has no end: a line with `---` is missing".to_owned());
        };
        let line = line.trim_end();
        if line == "---" || line == "..." {
            break;
        }
        bytes += line.len() + 1;
        if bytes > FRONT_BYTES {
            return Err(format!("its front matter has more than {FRONT_BYTES} bytes"));
        }
        head.push((lines.number, line));
    }
    let body = lines.rest.trim_start_matches(['\r', '\n']).to_owned();
    Ok(Some(Front { keys: keys(&head)?, body }))
}

struct Lines<'t> {
    rest: &'t str,
    number: usize,
}

impl<'t> Lines<'t> {
    fn next(&mut self) -> Option<&'t str> {
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

fn keys(head: &[(usize, &str)]) -> Result<Vec<(String, Value)>, String> {
    let mut keys: Vec<(String, Value)> = Vec::new();
    let mut at = 0;
    while let Some((number, line)) = head.get(at) {
        at += 1;
        if is_blank(line) {
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {why}");
        if line.starts_with([' ', '\t']) {
            return Err(wrong("it is indented, and no key stands above it"));
        }
        let Some((key, value)) = pair(line) else { return Err(wrong("`key: value` is expected")) };
        // What is indented, and a list that is not, belongs to the key above it.
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
        let value = value_of(value, &below).map_err(|why| wrong(&format!("`{key}`: {why}")))?;
        if keys.iter().any(|(name, _)| *name == key) {
            return Err(wrong(&format!("`{}` stands there twice", short(&key))));
        }
        if keys.len() == KEYS {
            return Err(wrong(&format!("there are more than {KEYS} keys")));
        }
        keys.push((key, value));
    }
    Ok(keys)
}

/// A key and what stands behind its colon.
fn pair(line: &str) -> Option<(String, &str)> {
    let (key, value) = match line.split_once(": ") {
        Some((key, value)) => (key, value.trim()),
        None => (line.trim_end().strip_suffix(':')?, ""),
    };
    let key = key.trim();
    let key = unquoted(key).unwrap_or_else(|| key.to_owned());
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '/');
    (!key.is_empty() && key.chars().all(plain)).then_some((key, value))
}

fn value_of(value: &str, below: &[&str]) -> Result<Value, String> {
    if let Some(style) = value.strip_prefix(['|', '>'])
        && style.trim_start_matches(['-', '+']).is_empty()
    {
        return Ok(Value::Text(block(below, value.starts_with('>'), style.contains('-'))));
    }
    if value.starts_with('[') {
        let flow: String = std::iter::once(value).chain(below.iter().map(|line| line.trim())).collect();
        return flow_list(&flow).map(Value::List);
    }
    if value.is_empty() || value.starts_with('#') {
        let mut lines = below.iter().filter(|line| !is_blank(line)).peekable();
        let first = lines.peek().map_or("", |line| line.trim_start());
        if first.is_empty() {
            return Ok(Value::Text(String::new()));
        }
        if first == "-" || first.starts_with("- ") {
            return block_list(lines.copied()).map(Value::List);
        }
        return match pair(first) {
            Some(_) => table(lines.copied()).map(Value::Table),
            None => scalar(&folded("", below)).map(Value::Text),
        };
    }
    if value.starts_with('{') {
        return Err("tables are written one line each, indented".to_owned());
    }
    scalar(&folded(value, below)).map(Value::Text)
}

/// A text that goes on in the lines below it.
fn folded(value: &str, below: &[&str]) -> String {
    let mut text = value.to_owned();
    for line in below.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(line);
    }
    text
}

fn block(below: &[&str], folds: bool, strips: bool) -> String {
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

fn block_list<'t>(lines: impl Iterator<Item = &'t str>) -> Result<Vec<String>, String> {
    let mut list = Vec::new();
    for line in lines {
        let Some(entry) = line.trim_start().strip_prefix('-') else {
            return Err("an entry of a list begins with `-`".to_owned());
        };
        let entry = entry.trim();
        if entry.is_empty() || (pair(entry).is_some() && unquoted(entry).is_none()) {
            return Err("its entries are no texts".to_owned());
        }
        push(&mut list, scalar(entry)?)?;
    }
    Ok(list)
}

fn table<'t>(lines: impl Iterator<Item = &'t str>) -> Result<Vec<(String, String)>, String> {
    let mut table = Vec::new();
    for line in lines {
        let Some((key, value)) = pair(line.trim_start()) else {
            return Err("it is neither a text nor a table of texts".to_owned());
        };
        if table.len() == ENTRIES {
            return Err(format!("it has more than {ENTRIES} entries"));
        }
        table.push((key, scalar(value)?));
    }
    Ok(table)
}

fn flow_list(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim_end();
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inside = inside.ok_or("the list has no end: `]` is missing")?;
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
        if entry.contains(['[', ']', '{', '}']) && unquoted(entry).is_none() {
            return Err("its entries are no texts".to_owned());
        }
        if !entry.is_empty() {
            push(&mut list, scalar(entry)?)?;
        }
        rest = rest.get(end + 1..).unwrap_or_default().trim_start();
    }
    Ok(list)
}

fn push(list: &mut Vec<String>, entry: String) -> Result<(), String> {
    if list.len() == ENTRIES {
        return Err(format!("it has more than {ENTRIES} entries"));
    }
    list.push(entry);
    Ok(())
}

/// A text that stands in one line.
fn scalar(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.starts_with(['"', '\'']) {
        let bare = match text.rfind(" #") {
            Some(comment) if unquoted(text).is_none() => text.get(..comment).unwrap_or_default().trim_end(),
            _ => text,
        };
        return unquoted(bare).ok_or_else(|| "a quotation mark is missing".to_owned());
    }
    if text.starts_with(['&', '*', '!']) {
        return Err(
            "anchors, aliases and tags are not understood; put the text into quotation marks".to_owned()
        );
    }
    let text = if text.starts_with('#') { "" } else { text };
    let end = text.find(" #").unwrap_or(text.len());
    Ok(text.get(..end).unwrap_or_default().trim_end().to_owned())
}

/// What stands between quotation marks that begin and end a text.
fn unquoted(text: &str) -> Option<String> {
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

/// The most of a text that a complaint repeats.
pub(crate) fn short(text: &str) -> String {
    minke_trust::shown(text.as_bytes(), 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(text: &str) -> Front {
        read(text).unwrap().unwrap()
    }

    #[test]
    fn what_people_write_is_understood() {
        let text = "---\nname: pdf-tools\ndescription: Reads PDF files: forms, too. # not this\nlicense: \"MIT # all of it\"\n\
                    # a comment\nallowed-tools: Bash(git:*) Read\nmetadata:\n  author: somebody\n  version: '1.0'\nrequires: [one, \"two\"]\n\
                    more:\n- three\n- 'four, five'\nlong: >-\n  first line\n  second line\n\n  after\nkept: |\n  a\n    b\ncarried:\n  on the\n  next lines\nend: it goes\n  on\n---\n\n# Body\n---\n";
        let front = front(text);
        assert_eq!(front.text("name").unwrap(), Some("pdf-tools"));
        assert_eq!(front.text("description").unwrap(), Some("Reads PDF files: forms, too."));
        assert_eq!(front.text("license").unwrap(), Some("MIT # all of it"));
        assert_eq!(front.text("allowed-tools").unwrap(), Some("Bash(git:*) Read"));
        let table =
            vec![("author".to_owned(), "somebody".to_owned()), ("version".to_owned(), "1.0".to_owned())];
        assert_eq!(front.get("metadata"), Some(&Value::Table(table)));
        assert_eq!(front.list("requires").unwrap(), ["one", "two"]);
        assert_eq!(front.list("more").unwrap(), ["three", "four, five"]);
        assert_eq!(front.text("long").unwrap(), Some("first line second line\nafter"));
        assert_eq!(front.text("kept").unwrap(), Some("a\n  b\n"));
        assert_eq!(front.text("carried").unwrap(), Some("on the next lines"));
        assert_eq!(front.text("end").unwrap(), Some("it goes on"));
        assert_eq!(front.body, "# Body\n---\n");
        assert_eq!(read("# no front matter\n").unwrap(), None);
        let crlf = read("---\r\nname: x\r\n---\r\nbody\r\n").unwrap().unwrap();
        assert_eq!((crlf.text("name").unwrap(), crlf.body.as_str()), (Some("x"), "body\r\n"));
        assert!(front_flag("yes").is_err() && front_flag("true").unwrap());
    }

    fn front_flag(word: &str) -> Result<bool, String> {
        front(&format!("---\nflag: {word}\n---\n")).flag("flag", false)
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
            let why = read(bad).unwrap_err();
            assert!(why.len() < 300, "{why}");
        }
    }
}
