//! What goes wrong in the tree: deaths, tickets that come twice, clocks that jump, a power cut.

use super::life::Stage;
use super::{Key, Tree, hand};

impl Tree {
    pub(super) fn kill(&mut self) -> Result<(), String> {
        let Some(key) = self.somebody() else { return Ok(()) };
        let process = &self.processes[&key];
        let what = match process.stage {
            Stage::Claims => "killed before it had its row",
            Stage::Says => "killed before it said ready",
            Stage::Boots => "killed before it booted",
            Stage::Lives if process.leaves.is_some() => "killed while it let go",
            Stage::Lives if process.errands.iter().any(|errand| matches!(errand, hand::Errand::Start(_))) => {
                "killed in the middle of a spawn"
            }
            Stage::Lives
                if process.errands.iter().any(|errand| matches!(errand, hand::Errand::Report(_))) =>
            {
                "killed with a report under way"
            }
            Stage::Lives => "killed",
        };
        self.met(what);
        self.note(key, what, String::new);
        self.die(key)
    }

    /// Somebody who has seen a ticket comes with it once more.
    pub(super) fn stray(&mut self) -> Result<(), String> {
        let Some(key) = self.somebody() else { return Ok(()) };
        let process = &self.processes[&key];
        let Some(ticket) = process.ticket.clone().filter(|_| process.stage != Stage::Claims) else {
            return Ok(());
        };
        let (name, session) = (process.name.clone(), process.session);
        let taken = self.machine.adopt((0, 0), (&name, session), &ticket).is_ok();
        self.met(if taken { "a used ticket was taken" } else { "a used ticket was refused" });
        Ok(())
    }

    pub(super) fn clock_jumps(&mut self) -> Result<(), String> {
        let hour = 3_600_000;
        if self.chance.one_in(2) {
            self.met("the clock jumped ahead");
            self.machine.now += hour;
        } else {
            self.met("the clock jumped back");
            self.machine.now -= hour;
        }
        Ok(())
    }

    /// The power was cut: nothing lives, the table is gone, and so is what was not synced.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        if !self.chance.one_in(5) {
            return Ok(());
        }
        self.met("the machine was restarted");
        let all: Vec<Key> = self.processes.keys().copied().collect();
        for key in all {
            self.die(key)?;
        }
        self.machine.restarted();
        let mut lost = false;
        for session in self.sessions.values_mut() {
            lost |= session.cut();
        }
        if lost {
            self.met("what was not synced was lost");
            self.watch.reread(self.sessions.iter().map(|(id, session)| (*id, session.entries())))?;
        }
        Ok(())
    }
}
