//! The `[host]` section of the user's `config.toml`. It is not part of a manifest, and a workspace cannot set
//! it.
//!
//! Elsewhere: the options of `minke host`, which take precedence (`cli`), limits for jobs (`thread`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use minke_manifest::{ConfigProblem, ManifestError, Origin, parse_seconds};
use serde_json::Value;

use crate::sources::SourcesError;
use crate::sources::config::{parse_table, read_config_text};

/// Name of the section.
pub(crate) const SECTION: &str = "host";
/// Limit for concurrent jobs on one machine.
const MAX_JOBS: u64 = 1_000;
const KEYS: [&str; 7] = [
    "host.bind",
    "host.token_file",
    "host.behind_proxy",
    "host.idle_exit",
    "host.jobs.running",
    "host.jobs.per_provider",
    "host.jobs.per_workspace",
];

/// Host settings of the user's file. Missing keys are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostSettings {
    pub bind: Option<SocketAddr>,
    pub token_file: Option<PathBuf>,
    /// Host name of a TLS reverse proxy in front of the host.
    pub behind_proxy: Option<String>,
    /// Seconds of inactivity until exit; 0 means never.
    pub idle_exit: Option<u64>,
    pub running: Option<usize>,
    pub per_provider: Option<usize>,
    pub per_workspace: Option<usize>,
}

/// Reads the host settings of the user's file.
pub fn load_host_settings(config: &Path) -> Result<HostSettings, SourcesError> {
    let Some((text, from)) = read_config_text(config)? else { return Ok(HostSettings::default()) };
    let (table, lines) = parse_table(&text, &from)?;
    match table.get(SECTION) {
        Some(section) => HostSettings::from_section(section, &|key| from.with_line(lines.nearest_line(key))),
        None => Ok(HostSettings::default()),
    }
}

impl HostSettings {
    /// Parses the section. Unknown keys are errors.
    pub(crate) fn from_section(
        section: &Value,
        at: &dyn Fn(&str) -> Origin,
    ) -> Result<HostSettings, SourcesError> {
        let mut settings = HostSettings::default();
        let mut problems = Vec::new();
        let mut left = vec![(SECTION.to_owned(), section)];
        while let Some((path, value)) = left.pop() {
            if let (SECTION | "host.jobs", Value::Object(members)) = (path.as_str(), value) {
                left.extend(members.iter().rev().map(|(name, value)| (format!("{path}.{name}"), value)));
                continue;
            }
            if let Err(what) = settings.set_value(&path, value) {
                let hint = Some(format!("the keys are {}", KEYS.join(", ")));
                let message = format!("`{path}` {what}");
                problems.push(ConfigProblem { origin: at(&path), key: path, message, hint });
            }
        }
        if problems.is_empty() { Ok(settings) } else { Err(ManifestError { problems }.into()) }
    }

    fn set_value(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let text = || value.as_str().filter(|text| !text.is_empty()).ok_or("must be a string".to_owned());
        let number = || {
            let number = value.as_u64().filter(|number| (1..=MAX_JOBS).contains(number));
            let number = number.and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("must be a number from 1 to {MAX_JOBS}"))
        };
        match path {
            "host.bind" => {
                let bind = text()?.parse();
                self.bind =
                    Some(bind.map_err(|_| "must be an address with a port, for example \"127.0.0.1:0\"")?);
            }
            "host.token_file" => {
                let file = PathBuf::from(text()?);
                self.token_file = Some(file.is_absolute().then_some(file).ok_or("must be an absolute path")?);
            }
            "host.behind_proxy" => self.behind_proxy = Some(text()?.to_owned()),
            "host.idle_exit" => {
                let idle = value.as_u64().or_else(|| parse_seconds(value.as_str()?));
                self.idle_exit =
                    Some(idle.ok_or("must be a number of seconds, or a string such as \"10m\"")?);
            }
            "host.jobs.running" => self.running = Some(number()?),
            "host.jobs.per_provider" => self.per_provider = Some(number()?),
            "host.jobs.per_workspace" => self.per_workspace = Some(number()?),
            "host.tls_cert" | "host.tls_key" => {
                return Err("is not supported: use a reverse proxy for TLS".to_owned());
            }
            SECTION | "host.jobs" => return Err("must be a table".to_owned()),
            _ => return Err("is not a known key".to_owned()),
        }
        Ok(())
    }
}
