//! `[host]` of the person's `config.toml`: how his host is run. No part of a manifest, and nothing that a workspace says.
//!
//! Elsewhere: the options of `minke host`, which count more (the binary), what room there is for jobs (`thread`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use minke_manifest::{ManifestError, Origin, Problem, seconds};
use serde_json::Value;

use crate::SourcesError;
use crate::config::{table_of, text_of};

/// The section's name.
pub(crate) const SECTION: &str = "host";
/// The most that one machine is asked to run at once.
const MOST: u64 = 1_000;
const KEYS: [&str; 7] = [
    "host.bind",
    "host.token_file",
    "host.behind_proxy",
    "host.idle_exit",
    "host.jobs.running",
    "host.jobs.per_provider",
    "host.jobs.per_workspace",
];

/// What the person's file says of the host; what it does not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostSettings {
    pub bind: Option<SocketAddr>,
    pub token_file: Option<PathBuf>,
    /// The name by which a reverse proxy with TLS is reached.
    pub behind_proxy: Option<String>,
    /// Seconds without anything to do; 0 never.
    pub idle_exit: Option<u64>,
    pub running: Option<usize>,
    pub per_provider: Option<usize>,
    pub per_workspace: Option<usize>,
}

/// What the person's file says of the host.
pub fn host(config: &Path) -> Result<HostSettings, SourcesError> {
    let Some((text, from)) = text_of(config)? else { return Ok(HostSettings::default()) };
    let (table, lines) = table_of(&text, &from)?;
    match table.get(SECTION) {
        Some(section) => HostSettings::of(section, &|key| from.at(lines.near(key))),
        None => Ok(HostSettings::default()),
    }
}

impl HostSettings {
    /// Every key that there is, and no other.
    pub(crate) fn of(section: &Value, at: &dyn Fn(&str) -> Origin) -> Result<HostSettings, SourcesError> {
        let mut settings = HostSettings::default();
        let mut problems = Vec::new();
        let mut left = vec![(SECTION.to_owned(), section)];
        while let Some((path, value)) = left.pop() {
            if let (SECTION | "host.jobs", Value::Object(members)) = (path.as_str(), value) {
                left.extend(members.iter().rev().map(|(name, value)| (format!("{path}.{name}"), value)));
                continue;
            }
            if let Err(what) = settings.take(&path, value) {
                let hint = Some(format!("there are {}", KEYS.join(", ")));
                let what = format!("`{path}` {what}");
                problems.push(Problem { origin: at(&path), key: path, what, hint });
            }
        }
        if problems.is_empty() { Ok(settings) } else { Err(ManifestError { problems }.into()) }
    }

    fn take(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let text = || value.as_str().filter(|text| !text.is_empty()).ok_or("is a text".to_owned());
        let number = || {
            let number = value.as_u64().filter(|number| (1..=MOST).contains(number));
            let number = number.and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("is a number from 1 to {MOST}"))
        };
        match path {
            "host.bind" => {
                let bind = text()?.parse();
                self.bind = Some(bind.map_err(|_| "is an address with a port, such as \"127.0.0.1:0\"")?);
            }
            "host.token_file" => {
                let file = PathBuf::from(text()?);
                self.token_file = Some(file.is_absolute().then_some(file).ok_or("is an absolute path")?);
            }
            "host.behind_proxy" => self.behind_proxy = Some(text()?.to_owned()),
            "host.idle_exit" => {
                let idle = value.as_u64().or_else(|| seconds(value.as_str()?));
                self.idle_exit = Some(idle.ok_or("is a number of seconds, or a text such as \"10m\"")?);
            }
            "host.jobs.running" => self.running = Some(number()?),
            "host.jobs.per_provider" => self.per_provider = Some(number()?),
            "host.jobs.per_workspace" => self.per_workspace = Some(number()?),
            "host.tls_cert" | "host.tls_key" => {
                return Err("is nothing that this version reads: TLS ends at a reverse proxy".to_owned());
            }
            SECTION | "host.jobs" => return Err("is a table".to_owned()),
            _ => return Err("is no key".to_owned()),
        }
        Ok(())
    }
}
