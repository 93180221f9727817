//! Writes lines to a file or a socket.
//!
//! Invariant: a file only grows by whole lines, and only a regular file at exactly this path is written
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

/// Attempts to take the lock of a file while another pod appends to it, and the delay between them.
const MAX_LOCK_TRIES: u32 = 20;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Appends lines to a file in one write. Blocks.
pub(crate) fn append_lines(path: &Path, lines: &[u8]) -> Result<(), String> {
    let failed = |what: &str, error: io::Error| format!("{} could not be {what}: {error}", path.display());
    create_parents(path).map_err(|error| failed("reached", error))?;
    let mut file = open_file(path).map_err(|error| failed("opened", error))?;
    let meta = file.metadata().map_err(|error| failed("inspected", error))?;
    if !meta.is_file() {
        return Err(format!("{} is not a regular file", path.display()));
    }
    lock_file(&file).map_err(|error| failed("locked", error))?;
    let before = file.metadata().map_err(|error| failed("inspected", error))?.len();
    let written = file.write(lines);
    if written.as_ref().is_ok_and(|written| *written == lines.len()) {
        return Ok(());
    }
    // Removes a partial line: under the lock, no process has appended after it.
    let back = file.set_len(before);
    let why = match (written, back) {
        (Err(error), _) | (Ok(_), Err(error)) => error,
        (Ok(_), Ok(())) => io::Error::from(io::ErrorKind::WriteZero),
    };
    Err(failed("written", why))
}

/// Resolves the existing directories of a path. Called once when hooks are loaded: later changes of these
/// directories are not followed.
pub(crate) fn resolve_path(path: &Path) -> PathBuf {
    for dir in path.ancestors().skip(1) {
        let Ok(real) = dir.canonicalize() else { continue };
        return path.strip_prefix(dir).map_or_else(|_| path.to_owned(), |rest| real.join(rest));
    }
    path.to_owned()
}

/// Creates the missing directories.
fn create_parents(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if !dir.exists() => std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir),
        _ => Ok(()),
    }
}

/// Opens exactly this path without blocking, even on a pipe without a reader.
fn open_file(path: &Path) -> io::Result<File> {
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
        Err(Errno::LOOP) => Err(io::Error::other("the path contains a symbolic link")),
        Err(Errno::NXIO) => Err(io::Error::other("it is not a regular file")),
        Err(error) => Err(error.into()),
    }
}

fn lock_file(file: &File) -> io::Result<()> {
    for _ in 0..MAX_LOCK_TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(LOCK_RETRY_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("another process holds its lock"))
}

/// Connects, sends the lines and closes.
pub(crate) async fn send_lines(path: &Path, lines: &[u8], timeout: Duration) -> Result<(), String> {
    let give = async {
        let mut socket = UnixStream::connect(path).await?;
        socket.write_all(lines).await?;
        socket.shutdown().await
    };
    let failed = |why: String| format!("could not write to the socket {}: {why}", path.display());
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
        // With a reader, so that opening succeeds.
        let _reader = rustix::fs::open(at("fifo"), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for name in ["link", "fifo", "socket", "."] {
            let why = append_lines(&at(name), b"{}\n").unwrap_err();
            assert!(why.contains("could not be") || why.contains("is not a regular file"), "{name}: {why}");
        }
        assert!(append_lines(Path::new("/dev/null"), b"{}\n").is_err());
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
        // A link that exists when the hooks are loaded is the user's own.
        let file = resolve_path(&at("known/logs/x.jsonl"));
        assert_eq!(file, at("real/logs/x.jsonl"));
        append_lines(&file, b"{}\n").unwrap();
        std::fs::rename(at("real/logs"), at("real/old")).unwrap();
        symlink(at("elsewhere"), at("real/logs")).unwrap();
        if cfg!(target_os = "linux") {
            let why = append_lines(&file, b"{}\n").unwrap_err();
            assert!(why.contains("link"), "{why}");
            assert_eq!(std::fs::read_dir(at("elsewhere")).unwrap().count(), 0);
        }
        assert_eq!(resolve_path(Path::new("/no/such/x")), Path::new("/no/such/x"));
    }

    #[test]
    fn a_file_gets_whole_lines_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/deep/events.jsonl");
        append_lines(&file, b"{\"a\":1}\n").unwrap();
        append_lines(&file, b"{\"a\":2}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"a\":1}\n{\"a\":2}\n");
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        // If another process holds the lock, nothing is written.
        let other = File::open(&file).unwrap();
        rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
        assert!(append_lines(&file, b"{\"a\":3}\n").unwrap_err().contains("lock"));
        drop(other);
        append_lines(&file, b"{\"a\":3}\n").unwrap();
        // Concurrent writes do not mix.
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let file = file.clone();
                std::thread::spawn(move || {
                    let line = format!("{}\n", n.to_string().repeat(5000));
                    (0..5).for_each(|_| append_lines(&file, line.as_bytes()).unwrap());
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
