//! A spare helper: started before it is known what for, so that the next command does not wait for it.
//!
//! Here: making, taking into use, giving up. Elsewhere: what it does meanwhile (`helper`, `inner`), who keeps one and for
//! how long (`command::spares`). It holds no lock, no descriptor and no directory of anybody: those come with the plan. It
//! ends with the line to it, and so with its pod (`tests/spare.rs`, `a_spare_ends_with_its_pod`).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use minke_policy::Tier;
use rustix::process::{Pid, Signal};

use super::control::{self, SENT};
use super::plan::Plan;
use super::walls::Walls;
use super::{FenceError, Helper, helper};

/// A helper without a plan. Dropping it ends it.
#[derive(Debug)]
pub struct Spare {
    helper: Helper,
    tier: Tier,
    /// `None` once it has been taken into use.
    process: Option<(Child, UnixStream)>,
}

impl Spare {
    /// Starts a helper that makes ready what any command of this tier needs. Blocks for the moment of starting only.
    pub fn make(helper: &Helper, tier: Tier) -> Result<Spare, FenceError> {
        let process = spawn(helper, Some(tier), None)?;
        Ok(Spare { helper: helper.clone(), tier, process: Some(process) })
    }

    /// Its process, while it waits.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|(child, _)| child.id())
    }

    /// The helper with the plan in its hands, if it fits and was alive to take it. What did not get the plan has done
    /// nothing, so that another may be started in its place.
    pub(super) fn hand(
        mut self,
        helper: &Helper,
        plan: &Plan,
        sent: [&OwnedFd; SENT],
    ) -> Option<(Child, UnixStream)> {
        let fits = self.helper == *helper && self.tier == plan.tier && plan.walls == Walls::ALL;
        let (child, line) = self.process.as_mut().filter(|_| fits)?;
        if !matches!(child.try_wait(), Ok(None)) {
            return None;
        }
        // Something may have stopped it: in tiers without a pid namespace a command can.
        wake(child);
        control::send_descriptors(line, sent).ok()?;
        self.process.take()
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let Some((child, line)) = self.process.take() else { return };
        wake(&child);
        drop(line);
        super::started::reap_elsewhere(child);
    }
}

fn wake(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _gone = rustix::process::kill_process(pid, Signal::CONT);
    }
}

/// Executes the helper, with the line as its standard input, on which may lie already what it is to do.
pub(super) fn spawn(
    helper: &Helper,
    spare_of: Option<Tier>,
    sent: Option<[&OwnedFd; SENT]>,
) -> Result<(Child, UnixStream), FenceError> {
    let (line, theirs) =
        UnixStream::pair().map_err(|e| FenceError::broken("making a line to the helper", e))?;
    if let Some(sent) = sent {
        control::send_descriptors(&line, sent)
            .map_err(|e| FenceError::broken("handing descriptors to the helper", e))?;
    }
    let child = Command::new(helper.path())
        .arg0(helper::NAME)
        .args(spare_of.map(Tier::as_str))
        .env_clear()
        .process_group(0)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| FenceError::broken(&format!("starting the helper {}", helper.path().display()), e))?;
    Ok((child, line))
}
