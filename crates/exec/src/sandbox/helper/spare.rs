//! A spare helper: started before its request is known, so that the next command does not wait for it.
//!
//! Here: starting it, sending it a request, ending it. Elsewhere: its preparation (`helper`, `init`), how long a pod
//! keeps one (`command::helper_pool`). It holds no lock, no descriptor and no directory; these come with the request.
//! It ends when its control socket closes, and so with its pod (`tests/fence/spare.rs`, `a_spare_ends_with_its_pod`).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use minke_policy::SandboxBackend;
use rustix::process::{Pid, Signal};

use super::super::control::{self, DESCRIPTOR_COUNT};
use super::super::plan::SandboxPlan;
use super::super::restrictions::Restrictions;
use super::super::{HelperBinary, SandboxError, helper};

/// A helper without a request. Dropping it ends it.
#[derive(Debug)]
pub struct SpareHelper {
    helper: HelperBinary,
    backend: SandboxBackend,
    /// `None` after it received a request.
    process: Option<(Child, UnixStream)>,
}

impl SpareHelper {
    /// Starts a helper that prepares for any command of this backend. Blocks only while the process starts.
    pub fn spawn_spare(helper: &HelperBinary, backend: SandboxBackend) -> Result<SpareHelper, SandboxError> {
        let process = spawn_helper(helper, Some(backend), None)?;
        Ok(SpareHelper { helper: helper.clone(), backend, process: Some(process) })
    }

    /// Returns its process id while it waits.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|(child, _)| child.id())
    }

    /// Sends the request and returns the helper's process, if the backend matches and the helper is alive. A helper
    /// that received no request has changed nothing, so another may be started in its place.
    pub(in crate::sandbox) fn send_plan(
        mut self,
        helper: &HelperBinary,
        plan: &SandboxPlan,
        sent: [&OwnedFd; DESCRIPTOR_COUNT],
    ) -> Option<(Child, UnixStream)> {
        let fits =
            self.helper == *helper && self.backend == plan.backend && plan.restrictions == Restrictions::ALL;
        let (child, line) = self.process.as_mut().filter(|_| fits)?;
        if !matches!(child.try_wait(), Ok(None)) {
            return None;
        }
        // A command could have stopped it, where there is no pid namespace.
        wake_process(child);
        control::send_descriptors(line, sent).ok()?;
        self.process.take()
    }
}

impl Drop for SpareHelper {
    fn drop(&mut self) {
        let Some((child, line)) = self.process.take() else { return };
        wake_process(&child);
        drop(line);
        super::super::helper::child::reap_in_background(child);
    }
}

fn wake_process(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _gone = rustix::process::kill_process(pid, Signal::CONT);
    }
}

/// Executes the helper with its control socket as standard input. The request may already be in the socket.
pub(in crate::sandbox) fn spawn_helper(
    helper: &HelperBinary,
    spare_of: Option<SandboxBackend>,
    sent: Option<[&OwnedFd; DESCRIPTOR_COUNT]>,
) -> Result<(Child, UnixStream), SandboxError> {
    let (line, theirs) =
        UnixStream::pair().map_err(|e| SandboxError::setup_failed("creating a socket to the helper", e))?;
    if let Some(sent) = sent {
        control::send_descriptors(&line, sent)
            .map_err(|e| SandboxError::setup_failed("sending descriptors to the helper", e))?;
    }
    let child = Command::new(helper.path())
        .arg0(helper::HELPER_NAME)
        .args(spare_of.map(SandboxBackend::as_str))
        .env_clear()
        .process_group(0)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| {
            SandboxError::setup_failed(&format!("starting the helper {}", helper.path().display()), e)
        })?;
    Ok((child, line))
}
