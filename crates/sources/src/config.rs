//! `config.toml`: from a file to a layer, with the line of every key.
//!
//! The person's file may be a link and may be anywhere; the workspace's is read as everything of a workspace is (`trust`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use minke_manifest::{LayerKind, Origin, Partial};
use serde_json::{Map, Value};
use toml_edit::{Document, Item, TableLike};

use crate::SourcesError;
use crate::host::{self, HostSettings};

/// The file's name in the configuration directory.
pub const CONFIG: &str = "config.toml";
/// Its place in a workspace.
pub const OF_WORKSPACE: &str = ".minke/config.toml";
/// The longest file that is read.
const FILE_BYTES: u64 = 1024 * 1024;

/// What the person's file says; `None` if there is none.
pub fn user(config: &Path) -> Result<Option<Partial>, SourcesError> {
    text_of(config)?.map(|(text, from)| parse(&text, &from)).transpose()
}

/// The person's file and how it is named; `None` if there is none.
pub(crate) fn text_of(config: &Path) -> Result<Option<(String, Origin)>, SourcesError> {
    let path = config.join(CONFIG);
    let name = path.display().to_string();
    let text = read(&path).map_err(|e| SourcesError::File {
        what: "read",
        path: name.clone(),
        why: e.to_string(),
    })?;
    Ok(text.map(|text| (text, Origin::new(LayerKind::User, name))))
}

/// What the workspace's file says; `None` if there is none.
pub fn workspace(workspace: &Path) -> Result<Option<Partial>, SourcesError> {
    let Some(text) = minke_trust::read(workspace, Path::new(OF_WORKSPACE), FILE_BYTES)? else {
        return Ok(None);
    };
    let name = workspace.join(OF_WORKSPACE).display().to_string();
    parse(&text, &Origin::new(LayerKind::Workspace, name)).map(Some)
}

/// A text of TOML as a layer. What the person's file says of the host is no part of it, and must be good all the same.
pub(crate) fn parse(text: &str, from: &Origin) -> Result<Partial, SourcesError> {
    let (mut table, lines) = table_of(text, from)?;
    if from.layer == LayerKind::User
        && let Some(host) = table.shift_remove(host::SECTION)
    {
        HostSettings::of(&host, &|path| from.at(lines.near(path)))?;
    }
    Ok(Partial::read(&Value::Object(table), from, &|path| lines.near(path))?)
}

/// A text of TOML, and where in it each key stands.
pub(crate) fn table_of<'t>(
    text: &'t str,
    from: &Origin,
) -> Result<(Map<String, Value>, Lines<'t>), SourcesError> {
    let document = Document::parse(text).map_err(|e| {
        let line = e.span().map(|span| line_of(text, span.start));
        SourcesError::Syntax { origin: from.at(line), why: e.message().trim_end().to_owned() }
    })?;
    let mut lines = Lines { text, of: BTreeMap::new() };
    let table = lines.table(document.as_table(), "");
    Ok((table, lines))
}

/// The person's file as text, for those who change it.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    // Somebody may have put a FIFO there.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(nonblock).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a file"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES {
        let what = format!("it has more than {FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(Some(text))
}

fn line_of(text: &str, at: usize) -> u32 {
    let before = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}

/// Where keys stand, collected while the values are taken over.
pub(crate) struct Lines<'t> {
    text: &'t str,
    of: BTreeMap<String, u32>,
}

impl Lines<'_> {
    /// The line of a key, or of the section around it.
    pub(crate) fn near(&self, path: &str) -> Option<u32> {
        let mut path = path;
        loop {
            if let Some(line) = self.of.get(path) {
                return Some(*line);
            }
            path = path.rsplit_once(['.', '[']).map(|(around, _)| around)?;
        }
    }

    fn note(&mut self, path: &str, span: Option<std::ops::Range<usize>>) {
        if let Some(span) = span {
            self.of.insert(path.to_owned(), line_of(self.text, span.start));
        }
    }

    fn table(&mut self, table: &dyn TableLike, path: &str) -> Map<String, Value> {
        let mut members = Map::new();
        for (name, item) in table.iter() {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            self.note(&path, span);
            members.insert(name.to_owned(), self.item(item, &path));
        }
        members
    }

    fn item(&mut self, item: &Item, path: &str) -> Value {
        match item {
            Item::None => Value::Null,
            Item::Table(table) => Value::Object(self.table(table, path)),
            Item::ArrayOfTables(tables) => {
                let entries = tables.iter().zip(0..).map(|(table, number)| {
                    let path = format!("{path}[{number}]");
                    self.note(&path, table.span());
                    Value::Object(self.table(table, &path))
                });
                Value::Array(entries.collect())
            }
            Item::Value(value) => self.value(value, path),
        }
    }

    fn value(&mut self, value: &toml_edit::Value, path: &str) -> Value {
        match value {
            toml_edit::Value::String(text) => Value::from(text.value().as_str()),
            toml_edit::Value::Integer(number) => Value::from(*number.value()),
            // What is no number of JSON becomes nothing, which no key takes.
            toml_edit::Value::Float(number) => Value::from(*number.value()),
            toml_edit::Value::Boolean(flag) => Value::from(*flag.value()),
            toml_edit::Value::Datetime(time) => Value::from(time.value().to_string()),
            toml_edit::Value::InlineTable(table) => Value::Object(self.table(table, path)),
            toml_edit::Value::Array(array) => {
                let entries = array.iter().zip(0..).map(|(entry, number)| {
                    let path = format!("{path}[{number}]");
                    self.note(&path, entry.span());
                    self.value(entry, &path)
                });
                Value::Array(entries.collect())
            }
        }
    }
}
