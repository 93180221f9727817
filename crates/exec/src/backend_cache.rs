//! Caches which backend works on this machine, so that not every pod has to probe.
//!
//! Here: the file, its validity and its removal. Elsewhere: the probe (`probe`). A wrong cache weakens nothing: if a
//! restriction cannot be applied, the command does not run and the cache is removed (`tests/memory.rs`).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use minke_policy::SandboxBackend;
use rustix::fs::OFlags;

/// The file name, in the runtime directory.
const CACHE_FILE: &str = "sandbox-backend";
/// The first word of the file, with the format version.
const CACHE_HEADER: &str = "minke-sandbox-backend-1";
/// The size limit; a cache file has a few hundred bytes.
const MAX_CACHE_BYTES: u64 = 4096;
/// How long a cache is valid, because the fingerprint does not cover everything.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The cache file that this process used.
static TRUSTED_FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The parts of a sandbox that the result of a probe depends on.
pub(crate) struct ProbedParts<'a> {
    pub(crate) helper: &'a Path,
    /// 0 without Landlock.
    pub(crate) landlock_abi: u32,
    pub(crate) bubblewrap: Option<PathBuf>,
}

/// Returns the cached backend for the current machine fingerprint.
pub(crate) fn load_backend(parts: &ProbedParts<'_>, dir: &Path) -> Option<SandboxBackend> {
    let circumstances = machine_fingerprint(parts)?;
    let path = dir.join(CACHE_FILE);
    let text = read_own_file(&path)?;
    let backend = text.strip_suffix('\n')?.strip_prefix(&circumstances)?.strip_prefix("\nbackend ")?;
    let backend: SandboxBackend = backend.parse().ok()?;
    // `none` and `off` are not cached.
    if !backend.enforces_scope() {
        return None;
    }
    *TRUSTED_FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
    Some(backend)
}

/// Stores the backend that worked; `none` is not stored.
pub(crate) fn store_backend(parts: &ProbedParts<'_>, dir: &Path, backend: SandboxBackend) -> io::Result<()> {
    let path = dir.join(CACHE_FILE);
    let Some(circumstances) = machine_fingerprint(parts).filter(|_| backend.enforces_scope()) else {
        return remove_cache_file(&path);
    };
    let fresh = dir.join(format!("{CACHE_FILE}.{}", std::process::id()));
    let written = write_own_file(&fresh, &format!("{circumstances}\nbackend {backend}\n"))
        .and_then(|()| std::fs::rename(&fresh, &path));
    if written.is_err() {
        let _never_made = std::fs::remove_file(&fresh);
    }
    written
}

/// Removes the cache that this process used, because a restriction could not be applied.
pub(crate) fn invalidate_cache() {
    let believed = TRUSTED_FILE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(path) = believed {
        // A file that cannot be removed expires tomorrow and weakens nothing until then.
        let _left = remove_cache_file(&path);
    }
}

fn remove_cache_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn no_follow_flag() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32
}

/// Returns the text of a file that only this user can have written, if it is not too old.
fn read_own_file(path: &Path) -> Option<String> {
    let file = File::options().read(true).custom_flags(no_follow_flag()).open(path).ok()?;
    let about = file.metadata().ok()?;
    let is_ours = about.is_file()
        && about.uid() == rustix::process::geteuid().as_raw()
        && about.mode() & 0o077 == 0
        && about.nlink() == 1;
    // A time in the future comes from a wrong clock.
    let age = SystemTime::now().duration_since(about.modified().ok()?).ok()?;
    if !is_ours || age > MAX_AGE || about.len() > MAX_CACHE_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_CACHE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn write_own_file(path: &Path, text: &str) -> io::Result<()> {
    remove_cache_file(path)?;
    let mut options = File::options();
    let mut file =
        options.write(true).create_new(true).mode(0o600).custom_flags(no_follow_flag()).open(path)?;
    file.write_all(text.as_bytes())
}

/// Kernel settings that affect which backends work.
const KERNEL_SETTINGS: [&str; 6] = [
    "kernel/random/boot_id",
    "user/max_user_namespaces",
    "user/max_net_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/seccomp/actions_avail",
];
/// Fields of `/proc/self/status` that affect this process.
const STATUS_FIELDS: [&str; 4] = ["NoNewPrivs:", "Seccomp:", "CapEff:", "CapBnd:"];

/// Returns everything that the result depends on; `None` if it is unknown.
fn machine_fingerprint(parts: &ProbedParts<'_>) -> Option<String> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let mut lines = vec![format!("{CACHE_HEADER} user {}", rustix::process::geteuid().as_raw())];
    lines.push(format!("helper {}", file_identity(parts.helper)?));
    lines.push(format!("landlock {}", parts.landlock_abi));
    lines.push(format!("bwrap {:?}", parts.bubblewrap.as_deref().and_then(file_identity)));
    for name in KERNEL_SETTINGS {
        let value = read(&Path::new("/proc/sys").join(name));
        // Without it, all boots have the same fingerprint.
        if name == KERNEL_SETTINGS[0] && value.is_none() {
            return None;
        }
        lines.push(format!("{name} {}", value.as_deref().map_or("-", str::trim)));
    }
    let status = read(Path::new("/proc/self/status"))?;
    lines.extend(
        status
            .lines()
            .filter(|line| STATUS_FIELDS.iter().any(|own| line.starts_with(own)))
            .map(str::to_owned),
    );
    for namespace in ["user", "mnt"] {
        let place = std::fs::read_link(Path::new("/proc/self/ns").join(namespace)).ok();
        lines.push(format!("in {namespace} {place:?}"));
    }
    Some(lines.join("\n"))
}

/// Identifies a file and its version.
fn file_identity(path: &Path) -> Option<String> {
    let about = path.metadata().ok()?;
    let (changed, part) = (about.ctime(), about.ctime_nsec());
    let (modified, fraction) = (about.mtime(), about.mtime_nsec());
    let (dev, ino, size) = (about.dev(), about.ino(), about.size());
    Some(format!("{dev}:{ino} size {size} modified {modified}.{fraction} changed {changed}.{part}"))
}
