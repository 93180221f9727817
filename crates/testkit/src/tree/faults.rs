//! Faults of the tree: crashes, repeated tickets, clock jumps, a power cut.

use super::machine::RowClaim;
use super::process::ProcessStage;
use super::{Key, TreeSimulation, pod_tasks};

impl TreeSimulation {
    pub(super) fn kill_process(&mut self) -> Result<(), String> {
        let Some(key) = self.random_process() else { return Ok(()) };
        let process = &self.processes[&key];
        let what = match process.stage {
            ProcessStage::ClaimsRow => "killed before it had its row",
            ProcessStage::ReportsReady => "killed before it reported ready",
            ProcessStage::Boots => "killed before it booted",
            ProcessStage::Running if process.exits_at.is_some() => "killed while it exited",
            ProcessStage::Running
                if process.tasks.iter().any(|errand| matches!(errand, pod_tasks::PodTask::Start(_))) =>
            {
                "killed in the middle of a spawn"
            }
            ProcessStage::Running
                if process.tasks.iter().any(|errand| matches!(errand, pod_tasks::PodTask::Report(_))) =>
            {
                "killed with a report in flight"
            }
            ProcessStage::Running => "killed",
        };
        self.count_branch(what);
        self.record_event(key, what, String::new);
        self.end_process(key)
    }

    /// Uses a ticket a second time.
    pub(super) fn replay_ticket(&mut self) -> Result<(), String> {
        let Some(key) = self.random_process() else { return Ok(()) };
        let process = &self.processes[&key];
        let Some(ticket) = process.ticket.clone().filter(|_| process.stage != ProcessStage::ClaimsRow) else {
            return Ok(());
        };
        let (name, session) = (process.name.clone(), process.session);
        let claim = RowClaim { key: 0, pid: 0, name: &name, session };
        let taken = self.machine.adopt_row(claim, &ticket).is_ok();
        self.count_branch(if taken { "a used ticket was accepted" } else { "a used ticket was refused" });
        Ok(())
    }

    pub(super) fn jump_clock(&mut self) -> Result<(), String> {
        let hour = 3_600_000;
        if self.random.one_in(2) {
            self.count_branch("the clock jumped ahead");
            self.machine.now += hour;
        } else {
            self.count_branch("the clock jumped back");
            self.machine.now -= hour;
        }
        Ok(())
    }

    /// Restarts the machine: no process runs, the table is empty, and unsynced entries are lost.
    pub(super) fn restart_machine(&mut self) -> Result<(), String> {
        if !self.random.one_in(5) {
            return Ok(());
        }
        self.count_branch("the machine was restarted");
        let all: Vec<Key> = self.processes.keys().copied().collect();
        for key in all {
            self.end_process(key)?;
        }
        self.machine.reset();
        let mut lost = false;
        for session in self.sessions.values_mut() {
            lost |= session.cut_power();
        }
        if lost {
            self.count_branch("unsynced entries were lost");
            self.checker.rebuild_from(self.sessions.iter().map(|(id, session)| (*id, session.entries())))?;
        }
        Ok(())
    }
}
