//! The bystander: a process outside the sandbox that a command must not reach.
//!
//! It blocks every signal, so that received signals stay pending and are visible. It has a secret in its environment,
//! its arguments, its memory and an open file, and prints where.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use crate::attacker::CANARY;
use crate::attacks::SIGNALS;
use crate::sys::sys;

pub(crate) struct BystanderProcess {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    address: usize,
    descriptor: i32,
}

impl BystanderProcess {
    pub(crate) fn start(program: &Path, file: &Path) -> io::Result<BystanderProcess> {
        let mut child = Command::new(program)
            .arg("bystander")
            .arg(file)
            .arg(CANARY)
            .env("BYSTANDER_TOKEN", CANARY)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("the pipe is missing");
        let ask = child.stdin.take().ok_or_else(missing)?;
        let mut answers = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        let mut words = line.split_whitespace().map(|word| word.parse().map_err(io::Error::other));
        let address = words.next().ok_or_else(missing)??;
        let descriptor = words.next().ok_or_else(missing)?? as i32;
        Ok(BystanderProcess { child, ask, answers, address, descriptor })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// Returns the probes whose signals are pending.
    pub(crate) fn pending_probes(&self) -> io::Result<Vec<&'static str>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let pending = status
            .lines()
            .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")))
            .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .fold(0, |all, mask| all | mask);
        let reached = SIGNALS.iter().filter(|(_, signal)| pending & (1 << (signal - 1)) != 0);
        Ok(reached.map(|(probe, _)| *probe).collect())
    }

    /// Returns the current memory content at the secret's address.
    pub(crate) fn read_memory(&mut self) -> io::Result<String> {
        self.ask.write_all(b"\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for BystanderProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `bystander FILE …`: the process itself. It ends when the process that started it closes the pipe.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let all = [u64::MAX];
    let _ = sys!(SYS_rt_sigprocmask, libc::SIG_BLOCK, all.as_ptr(), 0, size_of_val(&all));
    let Some(file) = args.first().and_then(|path| fs::File::open(path).ok()) else {
        return ExitCode::from(2);
    };
    let memory = CANARY.as_bytes().to_vec();
    let mut out = io::stdout();
    let hello = format!("{} {}\n", memory.as_ptr() as usize, file.as_raw_fd());
    if out.write_all(hello.as_bytes()).and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    for line in io::stdin().lock().lines() {
        // Read it from memory each time, because another process may have written there.
        let now = std::hint::black_box(&memory).clone();
        let text = format!("{}\n", String::from_utf8_lossy(&now));
        if line.is_err() || out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}
