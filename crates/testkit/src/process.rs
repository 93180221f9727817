//! Real processes for tests: a home of their own, spawned, listened to, and killed by id.
//!
//! Nothing here sleeps to wait for something: a test listens until the event that it needs has come, and a wait has an
//! end that names what was missing.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use minke_protocol::{Frame, LineReader, Request};

/// The longest that a test waits for the next bytes of a pod.
const PATIENCE: Duration = Duration::from_secs(20);

/// A home directory that is gone with the test, and a working directory in it.
#[derive(Debug)]
pub struct Home {
    place: tempfile::TempDir,
}

impl Home {
    pub fn new() -> io::Result<Home> {
        let place = tempfile::Builder::new().prefix("minke-test-").tempdir()?;
        std::fs::create_dir(place.path().join("project"))?;
        Ok(Home { place })
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Where the test's pods work.
    pub fn project(&self) -> PathBuf {
        self.place.path().join("project")
    }

    /// A command that knows this home and nothing of the machine's own.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.env("MINKE_HOME", self.path()).env("HOME", self.path()).current_dir(self.project());
        command
    }
}

/// A process of a test. It does not outlive the test.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    pub fn spawn(command: &mut Command) -> io::Result<Process> {
        let child = command.stdin(Stdio::null()).spawn()?;
        Ok(Process { child })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Signal 9, to this process alone; gives how it ended.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        if self.child.kill().is_ok() {
            let _ended = self.child.wait();
        }
    }
}

/// Whether a process died of signal 9.
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

/// A connection to a pod's socket.
#[derive(Debug)]
pub struct Listener {
    stream: UnixStream,
    reader: LineReader,
}

/// Why a test heard nothing more.
#[derive(Debug)]
pub enum Deaf {
    Io(io::Error),
    /// The pod hung up, or said something that is no frame.
    Ended(String),
}

impl std::fmt::Display for Deaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Deaf::Io(error) => write!(f, "the pod's socket: {error}"),
            Deaf::Ended(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Deaf {}

impl Listener {
    pub fn connect(socket: &Path) -> io::Result<Listener> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Listener { stream, reader: LineReader::new() })
    }

    pub fn send(&mut self, request: &Request) -> io::Result<()> {
        self.stream.write_all(request.line().as_bytes())
    }

    /// Reads until a frame is the one that the test waits for; gives everything up to it.
    pub fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Result<Vec<Frame>, Deaf> {
        let mut heard = Vec::new();
        loop {
            while let Some(line) = self.reader.next() {
                let line = line.map_err(|fault| Deaf::Ended(format!("a line that is none: {fault:?}")))?;
                let frame =
                    Frame::parse(line).map_err(|bad| Deaf::Ended(format!("`{line}`: {}", bad.why)))?;
                let found = wanted(&frame);
                heard.push(frame);
                if found {
                    return Ok(heard);
                }
            }
            let mut bytes = [0u8; 16 * 1024];
            let count = self.stream.read(&mut bytes).map_err(Deaf::Io)?;
            if count == 0 {
                let names: Vec<&str> = heard.iter().map(|frame| frame.event.name()).collect();
                return Err(Deaf::Ended(format!("the pod hung up after {}", names.join(", "))));
            }
            self.reader.push(bytes.get(..count).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_protocol::{Delta, Event};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_is_killed_by_its_id() {
        let home = Home::new().unwrap();
        let mut process = Process::spawn(home.command(Path::new("sleep")).arg("1000")).unwrap();
        assert!(process.id() > 0);
        assert!(was_killed(process.kill().unwrap()));
    }

    #[test]
    fn a_test_listens_until_it_has_heard_enough() {
        let home = Home::new().unwrap();
        let socket = home.path().join("sock");
        let server = UnixListener::bind(&socket).unwrap();
        let pod = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            for text in ["a", "b"] {
                let line = Frame::live(Event::TextDelta(Delta { text: text.into() }), 0, None).line();
                let (one, two) = line.as_bytes().split_at(7);
                stream.write_all(one).unwrap();
                stream.write_all(two).unwrap();
            }
        });
        let mut listener = Listener::connect(&socket).unwrap();
        let is = |wanted: &'static str| move |frame: &Frame| matches!(&frame.event, Event::TextDelta(d) if d.text == wanted);
        assert_eq!(listener.until(is("b")).unwrap().len(), 2);
        assert!(matches!(listener.until(is("c")), Err(Deaf::Ended(_))));
        pod.join().unwrap();
    }
}
