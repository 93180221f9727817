//! Where lines go: a file, to whose end they are appended whole, or a socket.
//!
//! Invariant: a file is only ever grown by whole lines, and nothing but a file at exactly that place is written
//! (`a_file_gets_whole_lines_or_none`, `nothing_but_a_file_is_written`).

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// How often, and how far apart, the lock of a file is tried: another pod appends to it at this moment.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Appends lines to a file, in one write. Blocks.
pub(crate) fn append(path: &Path, lines: &[u8]) -> Result<(), String> {
    let failed = |what: &str, error: io::Error| format!("{} cannot be {what}: {error}", path.display());
    make_way(path).map_err(|error| failed("reached", error))?;
    let mut file = open(path).map_err(|error| failed("opened", error))?;
    let meta = file.metadata().map_err(|error| failed("looked at", error))?;
    if !meta.is_file() {
        return Err(format!("{} is no file: lines are appended to files only", path.display()));
    }
    lock(&file).map_err(|error| failed("locked", error))?;
    let before = file.metadata().map_err(|error| failed("looked at", error))?.len();
    let written = file.write(lines);
    if written.as_ref().is_ok_and(|written| *written == lines.len()) {
        return Ok(());
    }
    // A part of a line must not stay: under the lock nobody has appended anything behind it.
    let back = file.set_len(before);
    let why = match (written, back) {
        (Err(error), _) | (Ok(_), Err(error)) => error,
        (Ok(_), Ok(())) => io::Error::from(io::ErrorKind::WriteZero),
    };
    Err(failed("written", why))
}

/// Where a path leads now: what exists of its directories is followed. Asked once, when hooks are read: what somebody
/// makes of those directories later is not followed.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    for dir in path.ancestors().skip(1) {
        let Ok(real) = dir.canonicalize() else { continue };
        return path.strip_prefix(dir).map_or_else(|_| path.to_owned(), |rest| real.join(rest));
    }
    path.to_owned()
}

/// Makes the directories that are missing.
fn make_way(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if !dir.exists() => std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir),
        _ => Ok(()),
    }
}

/// Opens exactly this place. Nothing that waits (a pipe without a reader) holds it up.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    #[cfg(target_os = "linux")]
    let opened = rustix::fs::openat2(
        rustix::fs::CWD,
        path,
        flags,
        mode,
        rustix::fs::ResolveFlags::NO_SYMLINKS | rustix::fs::ResolveFlags::NO_MAGICLINKS,
    );
    #[cfg(not(target_os = "linux"))]
    let opened = rustix::fs::open(path, flags, mode);
    match opened {
        Ok(file) => Ok(File::from(file)),
        Err(Errno::LOOP) => Err(io::Error::other("there is a link on the way, and it is not followed")),
        Err(Errno::NXIO) => Err(io::Error::other("it is no file")),
        Err(error) => Err(error.into()),
    }
}

fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("somebody else holds its lock"))
}

/// Connects, gives the lines and closes.
pub(crate) async fn send(path: &Path, lines: &[u8], timeout: Duration) -> Result<(), String> {
    let give = async {
        let mut socket = UnixStream::connect(path).await?;
        socket.write_all(lines).await?;
        socket.shutdown().await
    };
    let failed = |why: String| format!("the socket {} takes nothing: {why}", path.display());
    match tokio::time::timeout(timeout, give).await {
        Ok(given) => given.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("it did not read within {} s", timeout.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn nothing_but_a_file_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("target"), "before\n").unwrap();
        symlink(at("target"), at("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        // With a reader, so that it opens.
        let _reader = rustix::fs::open(at("fifo"), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for name in ["link", "fifo", "socket", "."] {
            let why = append(&at(name), b"{}\n").unwrap_err();
            assert!(why.contains("cannot be") || why.contains("is no file"), "{name}: {why}");
        }
        assert!(append(Path::new("/dev/null"), b"{}\n").is_err());
        assert_eq!(std::fs::read_to_string(at("target")).unwrap(), "before\n");
        drop(listener);
    }

    #[test]
    fn a_directory_that_becomes_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::create_dir(at("elsewhere")).unwrap();
        symlink(at("real"), at("known")).unwrap();
        // A link that was there when it was read is a person's own.
        let file = resolved(&at("known/logs/x.jsonl"));
        assert_eq!(file, at("real/logs/x.jsonl"));
        append(&file, b"{}\n").unwrap();
        std::fs::rename(at("real/logs"), at("real/old")).unwrap();
        symlink(at("elsewhere"), at("real/logs")).unwrap();
        if cfg!(target_os = "linux") {
            let why = append(&file, b"{}\n").unwrap_err();
            assert!(why.contains("link"), "{why}");
            assert_eq!(std::fs::read_dir(at("elsewhere")).unwrap().count(), 0);
        }
        assert_eq!(resolved(Path::new("/no/such/x")), Path::new("/no/such/x"));
    }

    #[test]
    fn a_file_gets_whole_lines_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/deep/events.jsonl");
        append(&file, b"{\"a\":1}\n").unwrap();
        append(&file, b"{\"a\":2}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"a\":1}\n{\"a\":2}\n");
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        // Held by somebody else, nothing is written.
        let other = File::open(&file).unwrap();
        rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
        assert!(append(&file, b"{\"a\":3}\n").unwrap_err().contains("lock"));
        drop(other);
        append(&file, b"{\"a\":3}\n").unwrap();
        // Many at once do not mix.
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let file = file.clone();
                std::thread::spawn(move || {
                    let line = format!("{}\n", n.to_string().repeat(5000));
                    (0..5).for_each(|_| append(&file, line.as_bytes()).unwrap());
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let text = std::fs::read_to_string(&file).unwrap();
        let long = text.lines().skip(3);
        assert_eq!(long.clone().count(), 40);
        assert!(
            long.into_iter().all(|line| line.len() == 5000 && line.bytes().all(|b| b == line.as_bytes()[0]))
        );
    }
}
