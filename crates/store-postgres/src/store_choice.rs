//! The store selected by environment variables.

use std::path::Path;

use crate::settings::{PostgresSettings, SettingsError};
use crate::store::PostgresStore;

/// The store's address. It may contain a password: it is never printed, and commands of a pod never get it.
pub const ADDRESS_ENV: &str = "MINKE_STORE";
/// The label of the workspaces on this machine.
const LABEL_ENV: &str = "MINKE_STORE_LABEL";
/// The duration of a lease without renewal.
const LEASE_MS_ENV: &str = "MINKE_STORE_LEASE_MS";

/// The settings of a selected PostgreSQL store.
#[derive(Clone)]
pub struct StoreChoice {
    address: String,
    label: Option<String>,
    lease_ms: Option<String>,
}

impl std::fmt::Debug for StoreChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chosen").field("label", &self.label).finish_non_exhaustive()
    }
}

impl StoreChoice {
    /// Returns `None` if sessions are stored in files. `variable` returns non-empty environment variables.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Option<StoreChoice> {
        let address = variable(ADDRESS_ENV)?;
        Some(StoreChoice { address, label: variable(LABEL_ENV), lease_ms: variable(LEASE_MS_ENV) })
    }

    /// Opens the store for the home with this data directory.
    pub fn open_store(&self, data: &Path) -> Result<PostgresStore, SettingsError> {
        let mut settings = PostgresSettings::new(&self.address, data)?;
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
