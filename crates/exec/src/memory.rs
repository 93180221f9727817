//! The memory of which tier works here, so that not every pod has to try.
//!
//! Here: the file, what it is believed by, when it is thrown away. Elsewhere: the trying (`probe`). A wrong memory opens
//! nothing: walls that do not stand run no command, and the first that does not stand makes the memory forgotten
//! (`tests/memory.rs`).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use minke_policy::Tier;
use rustix::fs::OFlags;

use crate::fence::{Helper, landlock_abi, system_bwrap};

/// What the file is called, in the runtime directory.
const NAME: &str = "fence-tier";
/// Its first word, with the version of what follows.
const WORD: &str = "minke-fence-tier-1";
/// A memory is a few hundred bytes.
const BYTES: u64 = 4096;
/// How long it is believed: what is not in its circumstances may change, too.
const BELIEVED: Duration = Duration::from_secs(24 * 60 * 60);

/// The memory that this process went by.
static BELIEVED_FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// What was seen to work earlier in these very circumstances.
pub(crate) fn recall(helper: &Helper, dir: &Path) -> Option<Tier> {
    let circumstances = circumstances(helper)?;
    let path = dir.join(NAME);
    let text = read_own(&path)?;
    let tier = text.strip_suffix('\n')?.strip_prefix(&circumstances)?.strip_prefix("\ntier ")?;
    let tier: Tier = tier.parse().ok()?;
    // That nothing works, or nothing is wanted, is not remembered.
    if !tier.holds() {
        return None;
    }
    *BELIEVED_FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
    Some(tier)
}

/// Writes down what was seen to work; that nothing does is not remembered.
pub(crate) fn remember(helper: &Helper, dir: &Path, tier: Tier) -> io::Result<()> {
    let path = dir.join(NAME);
    let Some(circumstances) = circumstances(helper).filter(|_| tier.holds()) else {
        return forget_file(&path);
    };
    let fresh = dir.join(format!("{NAME}.{}", std::process::id()));
    let written = write_own(&fresh, &format!("{circumstances}\ntier {tier}\n"))
        .and_then(|()| std::fs::rename(&fresh, &path));
    if written.is_err() {
        let _never_made = std::fs::remove_file(&fresh);
    }
    written
}

/// Throws away the memory that this process went by: a wall did not stand.
pub(crate) fn doubt() {
    let believed = BELIEVED_FILE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(path) = believed {
        // What cannot be removed is too old tomorrow, and opens nothing until then.
        let _left = forget_file(&path);
    }
}

fn forget_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn no_follow() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32
}

/// The text of a file that only we can have written, and not too long ago.
fn read_own(path: &Path) -> Option<String> {
    let file = File::options().read(true).custom_flags(no_follow()).open(path).ok()?;
    let about = file.metadata().ok()?;
    let is_ours = about.is_file()
        && about.uid() == rustix::process::geteuid().as_raw()
        && about.mode() & 0o077 == 0
        && about.nlink() == 1;
    // A time that lies ahead was not written by a clock that we can go by.
    let age = SystemTime::now().duration_since(about.modified().ok()?).ok()?;
    if !is_ours || age > BELIEVED || about.len() > BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn write_own(path: &Path, text: &str) -> io::Result<()> {
    forget_file(path)?;
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).custom_flags(no_follow()).open(path)?;
    file.write_all(text.as_bytes())
}

/// Kernel settings that decide what may be made.
const SETTINGS: [&str; 6] = [
    "kernel/random/boot_id",
    "user/max_user_namespaces",
    "user/max_net_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/seccomp/actions_avail",
];
/// What this process itself was given or denied, in `/proc/self/status`.
const OWN: [&str; 4] = ["NoNewPrivs:", "Seccomp:", "CapEff:", "CapBnd:"];

/// All that the answer depends on; `None` where it cannot be told.
fn circumstances(helper: &Helper) -> Option<String> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let mut lines = vec![format!("{WORD} user {}", rustix::process::geteuid().as_raw())];
    lines.push(format!("helper {}", identity(helper.path())?));
    lines.push(format!("landlock {}", landlock_abi()));
    lines.push(format!("bwrap {:?}", system_bwrap().and_then(|path| identity(&path))));
    for name in SETTINGS {
        let value = read(&Path::new("/proc/sys").join(name));
        // Without it every boot is the same.
        if name == SETTINGS[0] && value.is_none() {
            return None;
        }
        lines.push(format!("{name} {}", value.as_deref().map_or("-", str::trim)));
    }
    let status = read(Path::new("/proc/self/status"))?;
    lines
        .extend(status.lines().filter(|line| OWN.iter().any(|own| line.starts_with(own))).map(str::to_owned));
    for namespace in ["user", "mnt"] {
        let place = std::fs::read_link(Path::new("/proc/self/ns").join(namespace)).ok();
        lines.push(format!("in {namespace} {place:?}"));
    }
    Some(lines.join("\n"))
}

/// Which file this is, and in which state.
fn identity(path: &Path) -> Option<String> {
    let about = path.metadata().ok()?;
    let (changed, part) = (about.ctime(), about.ctime_nsec());
    let (modified, fraction) = (about.mtime(), about.mtime_nsec());
    let (dev, ino, size) = (about.dev(), about.ino(), about.size());
    Some(format!("{dev}:{ino} size {size} modified {modified}.{fraction} changed {changed}.{part}"))
}
