//! Which store somebody has chosen, by the variables of his environment.

use std::path::Path;

use crate::settings::{Settings, SettingsError};
use crate::store::PostgresStore;

/// The store's address. May hold a password: it is never printed, and no command of a pod gets it.
pub const ADDRESS: &str = "MINKE_STORE";
/// Where the workspaces of this machine are.
const LABEL: &str = "MINKE_STORE_LABEL";
/// How long a lease holds that nobody renews.
const LEASE_MS: &str = "MINKE_STORE_LEASE_MS";

/// A store that was chosen instead of files.
#[derive(Clone)]
pub struct Chosen {
    address: String,
    label: Option<String>,
    lease_ms: Option<String>,
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chosen").field("label", &self.label).finish_non_exhaustive()
    }
}

impl Chosen {
    /// `None` if sessions are kept in files. The function gives a variable that is set and not empty.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Chosen> {
        let address = variable(ADDRESS)?;
        Some(Chosen { address, label: variable(LABEL), lease_ms: variable(LEASE_MS) })
    }

    /// The store, for the home with this data directory.
    pub fn open(&self, data: &Path) -> Result<PostgresStore, SettingsError> {
        let mut settings = Settings::new(&self.address, data)?;
        if let Some(label) = &self.label {
            settings = settings.with_label(label)?;
        }
        if let Some(text) = &self.lease_ms {
            let ms = text.parse().map_err(|_| SettingsError::NotMillis(text.chars().take(40).collect()))?;
            settings = settings.with_lease_ms(ms)?;
        }
        PostgresStore::new(settings).map_err(|source| SettingsError::Io {
            what: "start a thread for",
            path: data.to_owned(),
            source,
        })
    }
}
