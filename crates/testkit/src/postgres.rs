//! A PostgreSQL server for one test: on a Unix socket in a temporary directory, no TCP, removed after the
//! test.
//!
//! It syncs for real, and can crash as after a power cut (`-m immediate`), stop and restart. A server refuses
//! to run as root, so under root it runs as the user of the package. Without PostgreSQL the test is reported
//! as skipped. It uses nothing of the workspace, so that tests of other crates can include it by path.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Startup timeout on a busy machine.
const COMES_UP: Duration = Duration::from_secs(60);
/// The user that the package creates.
const USER: &str = "postgres";

/// A server and its data.
pub struct Server {
    bin: PathBuf,
    home: PathBuf,
    sweeper: Mutex<Child>,
    /// The server process and the thread that started it: the kernel ends the server with the thread, so the
    /// thread waits.
    child: Mutex<Option<(u32, JoinHandle<()>)>>,
}

/// Returns the directory of the newest programs.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|version| Some((version.file_name().to_str()?.parse().ok()?, version.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, bin)| bin)
}

impl Server {
    /// Returns `None` with a message if PostgreSQL is not installed; with `MINKE_NO_SKIP` this is a failure.
    pub fn start() -> Option<Server> {
        let Some(bin) = programs() else {
            assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: PostgreSQL is not installed");
            eprintln!("SKIPPED: PostgreSQL is not installed (Debian: `apt-get install postgresql`)");
            return None;
        };
        let home =
            tempfile::Builder::new().prefix("minke-pg-").tempdir().expect("a temporary directory").keep();
        let sweeper =
            Mutex::new(sweeper(&home).unwrap_or_else(|e| panic!("could not start the cleanup process: {e}")));
        let server = Server { bin, home, sweeper, child: Mutex::new(None) };
        server.make().unwrap_or_else(|e| panic!("could not create a database: {e}"));
        server.up();
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// Returns the address for `--store`.
    pub fn address(&self) -> String {
        format!("postgres://minke@/postgres?host={}", self.home.display())
    }

    fn program(&self, name: &str) -> Command {
        let program = self.bin.join(name);
        // If the test is killed, its server is killed too.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if is_root() {
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        }
        command.arg(program).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn make(&self) -> io::Result<()> {
        if is_root() {
            let owned = Command::new("chown").arg(USER).arg(&self.home).status()?;
            assert!(owned.success(), "the user `{USER}` is missing");
        }
        let data = self.data();
        let made = self
            .program("initdb")
            .args(["-A", "trust", "-U", "minke", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .stderr(Stdio::piped())
            .output()?;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Option<(u32, JoinHandle<()>)>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the server and waits until it accepts connections.
    pub fn up(&self) {
        let log = std::fs::File::options().create(true).append(true).open(self.home.join("log"));
        let mut command = self.program("postgres");
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(&self.home)
            .args(["-c", "listen_addresses=", "-c", "fsync=on", "-c", "max_connections=300"])
            .args(["-c", "shared_buffers=32MB"])
            .stderr(log.map_or(Stdio::null(), Stdio::from));
        let (tell, told) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            let mut child = command.spawn().unwrap_or_else(|e| panic!("could not start the database: {e}"));
            tell.send(child.id()).expect("the receiver exists");
            drop(child.wait());
        });
        let pid = told.recv().expect("the database was started");
        *self.child() = Some((pid, waits));
        let until = Instant::now() + COMES_UP;
        while !self.answers() {
            assert!(Instant::now() < until, "the database does not come up:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let asked = self.program("pg_isready").arg("-q").arg("-h").arg(&self.home).status();
        asked.is_ok_and(|status| status.success())
    }

    /// Returns the end of the server's log.
    pub fn said(&self) -> String {
        let log = std::fs::read_to_string(self.home.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Kills the server as a power cut would: it writes nothing more.
    pub fn die(&self) {
        let Some((pid, waits)) = self.child().take() else { return };
        assert!(signal(pid, "QUIT"), "the database could not be ended");
        drop(waits.join());
    }

    /// Kills the server and restarts it from its journal.
    pub fn restart(&self) {
        self.die();
        self.up();
    }

    /// Returns one value of one row as text.
    pub fn ask(&self, sql: &str) -> String {
        let asked = self
            .program("psql")
            .args(["-X", "-A", "-t", "-q", "-U", "minke", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-h"])
            .arg(&self.home)
            .arg("-c")
            .arg(sql)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap_or_else(|e| panic!("psql: {e}"));
        assert!(asked.status.success(), "{sql}: {}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8_lossy(&asked.stdout).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((pid, waits)) = self.child().take()
            && signal(pid, "QUIT")
        {
            drop(waits.join());
        }
        let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
        drop(sweeper.stdin.take());
        drop(sweeper.wait());
    }
}

/// Removes all files when this process ends in any way: then its end of the stdin pipe closes.
fn sweeper(home: &Path) -> io::Result<Child> {
    const SWEEP: &str = r#"
        cat > /dev/null
        pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null
        for try in 1 2 3 4 5 6 7 8 9 10; do
            rm -rf "$1" 2>/dev/null
            [ -e "$1" ] || exit 0
            sleep 0.2
        done"#;
    let mut command = Command::new("sh");
    command.args(["-c", SWEEP, "sh"]).arg(home).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()
}

fn signal(pid: u32, name: &str) -> bool {
    Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().is_ok_and(|s| s.success())
}

fn is_root() -> bool {
    let asked = Command::new("id").arg("-u").output();
    asked.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}
