//! Real processes for tests: with a home of their own, spawned, connected to and killed by id.
//!
//! No test sleeps to wait: it reads until the expected event arrives, with a timeout whose error names the
//! received events.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use minke_protocol::{ClientRequest, Frame, LineReader};

/// Maximum time without new bytes from a pod.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A home directory that is removed after the test, with a working directory.
#[derive(Debug)]
pub struct TestHome {
    directory: tempfile::TempDir,
}

impl TestHome {
    pub fn new() -> io::Result<TestHome> {
        let directory = tempfile::Builder::new().prefix("minke-test-").tempdir()?;
        std::fs::create_dir(directory.path().join("project"))?;
        Ok(TestHome { directory })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the working directory of the test's pods.
    pub fn project_dir(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    /// Returns a command with this home and without the environment of the machine.
    pub fn command_for(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.env("MINKE_HOME", self.path()).env("HOME", self.path()).current_dir(self.project_dir());
        command
    }
}

/// A process of a test. It ends with the test.
#[derive(Debug)]
pub struct TestProcess {
    child: Child,
}

impl TestProcess {
    pub fn spawn_command(command: &mut Command) -> io::Result<TestProcess> {
        let child = command.stdin(Stdio::null()).spawn()?;
        Ok(TestProcess { child })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL to this process alone and returns its exit status.
    pub fn kill_and_wait(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // It may have ended already.
        if self.child.kill().is_ok() {
            let _ended = self.child.wait();
        }
    }
}

/// Returns whether a process died of SIGKILL.
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

/// A connection to a pod's socket.
#[derive(Debug)]
pub struct TestListener {
    stream: UnixStream,
    reader: LineReader,
}

/// Why reading stopped.
#[derive(Debug)]
pub enum ListenError {
    Io(io::Error),
    /// The pod closed the connection or sent an invalid frame.
    Closed(String),
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenError::Io(error) => write!(f, "the pod's socket: {error}"),
            ListenError::Closed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ListenError {}

impl TestListener {
    pub fn connect(socket: &Path) -> io::Result<TestListener> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(TestListener { stream, reader: LineReader::new() })
    }

    pub fn send_request(&mut self, request: &ClientRequest) -> io::Result<()> {
        self.stream.write_all(request.to_line().as_bytes())
    }

    /// Reads until a frame matches and returns all frames up to it.
    pub fn read_until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Result<Vec<Frame>, ListenError> {
        let mut frames = Vec::new();
        loop {
            while let Some(line) = self.reader.next() {
                let line =
                    line.map_err(|fault| ListenError::Closed(format!("a line that is none: {fault:?}")))?;
                let frame = Frame::parse(line)
                    .map_err(|bad| ListenError::Closed(format!("`{line}`: {}", bad.why)))?;
                let found = wanted(&frame);
                frames.push(frame);
                if found {
                    return Ok(frames);
                }
            }
            let mut bytes = [0u8; 16 * 1024];
            let count = self.stream.read(&mut bytes).map_err(ListenError::Io)?;
            if count == 0 {
                let names: Vec<&str> = frames.iter().map(|frame| frame.event.name()).collect();
                return Err(ListenError::Closed(format!("the pod hung up after {}", names.join(", "))));
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
        let home = TestHome::new().unwrap();
        let mut process =
            TestProcess::spawn_command(home.command_for(Path::new("sleep")).arg("1000")).unwrap();
        assert!(process.id() > 0);
        assert!(was_killed(process.kill_and_wait().unwrap()));
    }

    #[test]
    fn a_test_listens_until_it_has_heard_enough() {
        let home = TestHome::new().unwrap();
        let socket = home.path().join("sock");
        let server = UnixListener::bind(&socket).unwrap();
        let pod = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            for text in ["a", "b"] {
                let line = Frame::new_live(Event::TextDelta(Delta { text: text.into() }), 0, None).to_line();
                let (one, two) = line.as_bytes().split_at(7);
                stream.write_all(one).unwrap();
                stream.write_all(two).unwrap();
            }
        });
        let mut listener = TestListener::connect(&socket).unwrap();
        let is = |wanted: &'static str| move |frame: &Frame| matches!(&frame.event, Event::TextDelta(d) if d.text == wanted);
        assert_eq!(listener.read_until(is("b")).unwrap().len(), 2);
        assert!(matches!(listener.read_until(is("c")), Err(ListenError::Closed(_))));
        pod.join().unwrap();
    }
}
