//! Reads `config.toml` into a layer with the line of every key.
//!
//! The user's file may be a link to any place. The workspace's file is read like all files of a workspace
//! (`trust`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use minke_manifest::{LayerKind, Origin, PartialManifest};
use serde_json::{Map, Value};
use toml_edit::{Document, Item, TableLike};

use crate::sources::SourcesError;
use crate::sources::host_settings::{self, HostSettings};

/// File name in the configuration directory.
pub const CONFIG_FILE: &str = "config.toml";
/// Path in a workspace.
pub const WORKSPACE_CONFIG: &str = ".minke/config.toml";
/// Limit for the file size.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads the user's file. Returns `None` if it does not exist.
pub fn load_user_config(config: &Path) -> Result<Option<PartialManifest>, SourcesError> {
    read_config_text(config)?.map(|(text, from)| parse_layer(&text, &from)).transpose()
}

/// Reads the user's file with its origin. Returns `None` if it does not exist.
pub(crate) fn read_config_text(config: &Path) -> Result<Option<(String, Origin)>, SourcesError> {
    let path = config.join(CONFIG_FILE);
    let name = path.display().to_string();
    let text = read_config_file(&path).map_err(|e| SourcesError::File {
        operation: "read",
        path: name.clone(),
        why: e.to_string(),
    })?;
    Ok(text.map(|text| (text, Origin::new(LayerKind::User, name))))
}

/// Reads the workspace's file. Returns `None` if it does not exist.
pub fn load_workspace_config(workspace: &Path) -> Result<Option<PartialManifest>, SourcesError> {
    let Some(text) = crate::trust::read_text_file(workspace, Path::new(WORKSPACE_CONFIG), MAX_FILE_BYTES)?
    else {
        return Ok(None);
    };
    let name = workspace.join(WORKSPACE_CONFIG).display().to_string();
    parse_layer(&text, &Origin::new(LayerKind::Workspace, name)).map(Some)
}

/// Parses TOML into a layer. Excludes the `[host]` section of the user's file, but checks it.
pub(crate) fn parse_layer(text: &str, from: &Origin) -> Result<PartialManifest, SourcesError> {
    let (mut table, lines) = parse_table(text, from)?;
    if from.layer == LayerKind::User
        && let Some(host) = table.shift_remove(host_settings::SECTION)
    {
        HostSettings::from_section(&host, &|path| from.with_line(lines.nearest_line(path)))?;
    }
    Ok(PartialManifest::from_table(&Value::Object(table), from, &|path| lines.nearest_line(path))?)
}

/// Parses TOML and records the line of each key.
pub(crate) fn parse_table<'t>(
    text: &'t str,
    from: &Origin,
) -> Result<(Map<String, Value>, KeyLines<'t>), SourcesError> {
    let document = Document::parse(text).map_err(|e| {
        let line = e.span().map(|span| line_number(text, span.start));
        SourcesError::Syntax { origin: from.with_line(line), why: e.message().trim_end().to_owned() }
    })?;
    let mut lines = KeyLines { text, lines: BTreeMap::new() };
    let table = lines.convert_table(document.as_table(), "");
    Ok((table, lines))
}

/// Reads the user's file as text.
pub(crate) fn read_config_file(path: &Path) -> io::Result<Option<String>> {
    // The path may be a FIFO.
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
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let what = format!("it has more than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(Some(text))
}

fn line_number(text: &str, at: usize) -> u32 {
    let before = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}

/// The lines of keys, collected while the values are converted.
pub(crate) struct KeyLines<'t> {
    text: &'t str,
    lines: BTreeMap<String, u32>,
}

impl KeyLines<'_> {
    /// Returns the line of a key, or of its section.
    pub(crate) fn nearest_line(&self, path: &str) -> Option<u32> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = path.rsplit_once(['.', '[']).map(|(around, _)| around)?;
        }
    }

    fn add_line(&mut self, path: &str, span: Option<std::ops::Range<usize>>) {
        if let Some(span) = span {
            self.lines.insert(path.to_owned(), line_number(self.text, span.start));
        }
    }

    fn convert_table(&mut self, table: &dyn TableLike, path: &str) -> Map<String, Value> {
        let mut members = Map::new();
        for (name, item) in table.iter() {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            self.add_line(&path, span);
            members.insert(name.to_owned(), self.convert_item(item, &path));
        }
        members
    }

    fn convert_item(&mut self, item: &Item, path: &str) -> Value {
        match item {
            Item::None => Value::Null,
            Item::Table(table) => Value::Object(self.convert_table(table, path)),
            Item::ArrayOfTables(tables) => {
                let entries = tables.iter().zip(0..).map(|(table, number)| {
                    let path = format!("{path}[{number}]");
                    self.add_line(&path, table.span());
                    Value::Object(self.convert_table(table, &path))
                });
                Value::Array(entries.collect())
            }
            Item::Value(value) => self.convert_value(value, path),
        }
    }

    fn convert_value(&mut self, value: &toml_edit::Value, path: &str) -> Value {
        match value {
            toml_edit::Value::String(text) => Value::from(text.value().as_str()),
            toml_edit::Value::Integer(number) => Value::from(*number.value()),
            // A number without a JSON form becomes null, which every key rejects.
            toml_edit::Value::Float(number) => Value::from(*number.value()),
            toml_edit::Value::Boolean(flag) => Value::from(*flag.value()),
            toml_edit::Value::Datetime(time) => Value::from(time.value().to_string()),
            toml_edit::Value::InlineTable(table) => Value::Object(self.convert_table(table, path)),
            toml_edit::Value::Array(array) => {
                let entries = array.iter().zip(0..).map(|(entry, number)| {
                    let path = format!("{path}[{number}]");
                    self.add_line(&path, entry.span());
                    self.convert_value(entry, &path)
                });
                Value::Array(entries.collect())
            }
        }
    }
}
