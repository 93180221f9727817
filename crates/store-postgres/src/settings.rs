//! Settings: which server, who we are to others that use it, and how long leases hold.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postgres::Config;
use postgres::config::Host;
use uuid::Uuid;

/// How long things take at most, all from one number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// How long a lease holds that nobody renews.
    pub(crate) lease: Duration,
    pub(crate) renew: Duration,
    /// Without a renewal for so long, this process no longer believes that it holds its leases.
    pub(crate) doubt: Duration,
    /// How long a server that restarts is waited for.
    pub(crate) patience: Duration,
}

impl Times {
    fn of(lease: Duration) -> Times {
        Times { lease, renew: lease / 6, doubt: lease * 2 / 3, patience: lease / 2 }
    }

    pub(crate) fn lease_ms(self) -> f64 {
        self.lease.as_secs_f64() * 1_000.0
    }
}

/// The usual life of a lease: renewed every five seconds.
const LEASE: Duration = Duration::from_secs(30);
/// The shortest and the longest that may be asked for.
const LEASE_LEAST: Duration = Duration::from_millis(600);
const LEASE_MOST: Duration = Duration::from_secs(600);
/// The file that says which home this is.
const HOME_ID: &str = "store-id";
/// Where the kernel locks of this machine are.
const LEASES: &str = "leases";
const LABEL_BYTES: usize = 200;

/// What a store in PostgreSQL is opened with.
pub struct Settings {
    pub(crate) config: Config,
    pub(crate) owner: Uuid,
    pub(crate) locks: PathBuf,
    pub(crate) times: Times,
    /// Where the workspaces of sessions made here are.
    pub(crate) label: String,
    /// As it is said in errors: without user and password.
    pub(crate) place: String,
}

/// A store that cannot be used as it was named.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("the store's address is not one of PostgreSQL: {0}")]
    Address(String),
    #[error("the label `{0}` of this machine is empty, too long or has control characters")]
    Label(String),
    #[error("a lease of {0} ms is too short or too long")]
    Lease(u64),
    #[error("MINKE_STORE_LEASE_MS is `{0}`, which is no number of milliseconds")]
    NotMillis(String),
    #[error("cannot {what} {}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl Settings {
    /// `data` is the home's data directory: it keeps who this home is, and the locks between its own processes.
    pub fn new(address: &str, data: &Path) -> Result<Settings, SettingsError> {
        // What the parser says never repeats the address, which may hold a password.
        let mut config: Config = address.parse().map_err(|e: postgres::Error| {
            let source = std::error::Error::source(&e).map(ToString::to_string);
            SettingsError::Address(source.unwrap_or_else(|| e.to_string()))
        })?;
        if config.get_hosts().is_empty() {
            return Err(SettingsError::Address("it names no host".to_owned()));
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
        let place = place_of(&config);
        let locks = data.join(LEASES);
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| SettingsError::Io { what, path, source }
        };
        std::fs::create_dir_all(&locks).map_err(io("make", &locks))?;
        let id = data.join(HOME_ID);
        let owner = home_id(&id).map_err(io("read or make", &id))?;
        let label = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Settings { config, owner, locks, times: Times::of(LEASE), label, place })
    }

    /// Says where the workspaces of this machine are: hosts with the same label start each other's jobs. Without it, the
    /// machine's name.
    pub fn with_label(mut self, label: &str) -> Result<Settings, SettingsError> {
        if label.is_empty() || label.len() > LABEL_BYTES || label.chars().any(char::is_control) {
            return Err(SettingsError::Label(label.chars().take(LABEL_BYTES).collect()));
        }
        label.clone_into(&mut self.label);
        Ok(self)
    }

    /// How long a lease holds that nobody renews. Everybody on one database should say the same.
    pub fn with_lease_ms(mut self, ms: u64) -> Result<Settings, SettingsError> {
        let lease = Duration::from_millis(ms);
        if !(LEASE_LEAST..=LEASE_MOST).contains(&lease) {
            return Err(SettingsError::Lease(ms));
        }
        self.times = Times::of(lease);
        Ok(self)
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("place", &self.place).finish_non_exhaustive()
    }
}

fn place_of(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.to_string_lossy().trim_start_matches('/').replace('/', "%2F"),
        None => String::new(),
    };
    let database = config.get_dbname().or(config.get_user()).unwrap_or("");
    format!("postgres:{host}/{database}")
}

/// Random once, kept: processes of one home follow each other without waiting for a lease to expire.
fn home_id(path: &Path) -> io::Result<Uuid> {
    use std::io::Write;
    let fresh = Uuid::now_v7();
    let temporary = path.with_extension(fresh.to_string());
    let mut file = std::fs::File::options().write(true).create_new(true).open(&temporary)?;
    let written = writeln!(file, "{fresh}").and_then(|()| file.sync_all());
    // A link, not a rename: whoever comes second reads what the first has made.
    let linked = written.and_then(|()| std::fs::hard_link(&temporary, path));
    std::fs::remove_file(&temporary)?;
    match linked {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let text = std::fs::read_to_string(path)?;
    Uuid::parse_str(text.trim()).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
