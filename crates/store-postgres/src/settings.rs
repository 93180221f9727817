//! Settings: the server, the identity of this home, and the lease times.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postgres::Config;
use postgres::config::Host;
use uuid::Uuid;

/// Time limits, all derived from the lease time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseTimes {
    /// The duration of a lease without renewal.
    pub(crate) lease: Duration,
    pub(crate) renew: Duration,
    /// After this time without a renewal, this process considers its leases lost.
    pub(crate) unsure_after: Duration,
    /// How long to wait for a restarting server.
    pub(crate) retry_for: Duration,
}

impl LeaseTimes {
    fn from_lease(lease: Duration) -> LeaseTimes {
        LeaseTimes { lease, renew: lease / 6, unsure_after: lease * 2 / 3, retry_for: lease / 2 }
    }

    pub(crate) fn lease_ms(self) -> f64 {
        self.lease.as_secs_f64() * 1_000.0
    }
}

/// The default lease time: renewed every five seconds.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// The minimum and the maximum lease time.
const MIN_LEASE: Duration = Duration::from_millis(600);
const MAX_LEASE: Duration = Duration::from_secs(600);
/// The file with the id of this home.
const HOME_ID_FILE: &str = "store-id";
/// The directory of the kernel locks of this machine.
const LEASES_DIR: &str = "leases";
const MAX_LABEL_BYTES: usize = 200;

/// The settings of a PostgreSQL store.
pub struct PostgresSettings {
    pub(crate) config: Config,
    pub(crate) owner: Uuid,
    pub(crate) locks: PathBuf,
    pub(crate) times: LeaseTimes,
    /// The label of the workspaces of sessions created here.
    pub(crate) label: String,
    /// The address for error messages, without user and password.
    pub(crate) display_address: String,
}

/// Invalid settings of a store.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("the store's address is not a PostgreSQL address: {0}")]
    Address(String),
    #[error("the label `{0}` of this machine is empty, too long or has control characters")]
    Label(String),
    #[error("the lease time of {0} ms is too short or too long")]
    Lease(u64),
    #[error("MINKE_STORE_LEASE_MS is `{0}`, which is not a number of milliseconds")]
    NotMillis(String),
    #[error("could not {what} {}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl PostgresSettings {
    /// `data` is the home's data directory: it contains the id of this home, and the locks between its own processes.
    pub fn new(address: &str, data: &Path) -> Result<PostgresSettings, SettingsError> {
        // Errors of the parser never contain the address, which may include a password.
        let mut config: Config = address.parse().map_err(|e: postgres::Error| {
            let source = std::error::Error::source(&e).map(ToString::to_string);
            SettingsError::Address(source.unwrap_or_else(|| e.to_string()))
        })?;
        if config.get_hosts().is_empty() {
            return Err(SettingsError::Address("it has no host".to_owned()));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        config.keepalives_idle(Duration::from_secs(5));
        config.keepalives_interval(Duration::from_secs(2));
        if config.get_application_name().is_none() {
            config.application_name("minke");
        }
        let display_address = display_address_of(&config);
        let locks = data.join(LEASES_DIR);
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| SettingsError::Io { what, path, source }
        };
        std::fs::create_dir_all(&locks).map_err(io("make", &locks))?;
        let id = data.join(HOME_ID_FILE);
        let owner = load_home_id(&id).map_err(io("read or create", &id))?;
        let label = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(PostgresSettings {
            config,
            owner,
            locks,
            times: LeaseTimes::from_lease(DEFAULT_LEASE),
            label,
            display_address,
        })
    }

    /// Sets the label of the workspaces on this machine: hosts with the same label start each other's jobs. By default
    /// the machine's name.
    pub fn with_label(mut self, label: &str) -> Result<PostgresSettings, SettingsError> {
        if label.is_empty() || label.len() > MAX_LABEL_BYTES || label.chars().any(char::is_control) {
            return Err(SettingsError::Label(label.chars().take(MAX_LABEL_BYTES).collect()));
        }
        label.clone_into(&mut self.label);
        Ok(self)
    }

    /// Sets the lease time. All users of one database should use the same.
    pub fn with_lease_ms(mut self, ms: u64) -> Result<PostgresSettings, SettingsError> {
        let lease = Duration::from_millis(ms);
        if !(MIN_LEASE..=MAX_LEASE).contains(&lease) {
            return Err(SettingsError::Lease(ms));
        }
        self.times = LeaseTimes::from_lease(lease);
        Ok(self)
    }
}

impl std::fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("place", &self.display_address).finish_non_exhaustive()
    }
}

fn display_address_of(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.to_string_lossy().trim_start_matches('/').replace('/', "%2F"),
        None => String::new(),
    };
    let database = config.get_dbname().or(config.get_user()).unwrap_or("");
    format!("postgres:{host}/{database}")
}

/// Returns the stored random id of this home, by which its processes succeed each other without waiting for a lease to
/// expire.
fn load_home_id(path: &Path) -> io::Result<Uuid> {
    use std::io::Write;
    let fresh = Uuid::now_v7();
    let temporary = path.with_extension(fresh.to_string());
    let mut file = std::fs::File::options().write(true).create_new(true).open(&temporary)?;
    let written = writeln!(file, "{fresh}").and_then(|()| file.sync_all());
    // A link, not a rename: a concurrent process reads the id of the first one.
    let linked = written.and_then(|()| std::fs::hard_link(&temporary, path));
    std::fs::remove_file(&temporary)?;
    match linked {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let text = std::fs::read_to_string(path)?;
    Uuid::parse_str(text.trim()).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
