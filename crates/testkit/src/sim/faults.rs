//! Faults: crashes, power cuts, disk faults, a second writer.

use super::*;

impl Simulation {
    pub(super) fn kill_pod(&mut self, node: usize) -> Result<(), String> {
        self.nodes[node].record.count_branch("a process was killed");
        self.end_process(node, DeathKind::Kill)
    }

    pub(super) fn cut_power(&mut self) -> Result<(), String> {
        if !self.random.one_in(3) {
            return Ok(());
        }
        let seed = if self.random.one_in(2) { Some(self.random.next_u64()) } else { None };
        self.restart_machine(seed)
    }

    pub(super) fn restart_machine(&mut self, seed: Option<u64>) -> Result<(), String> {
        self.needs_restart = false;
        self.disk.set_fault_plan(None);
        self.record_event(&format!("power cut {seed:?}"), 0);
        self.disk.cut_power(seed);
        for node in 0..POD_COUNT {
            if self.nodes[node].process.is_some() {
                self.nodes[node].record.count_branch(if seed.is_some() {
                    "the power was cut, torn"
                } else {
                    "the power was cut"
                });
                self.end_process(node, DeathKind::PowerLost)?;
            }
        }
        Ok(())
    }

    pub(super) fn plan_fault(&mut self, node: usize) -> Result<(), String> {
        let fault = *self.random.pick(&DiskFault::ALL).expect("there are faults");
        let plan = FaultPlan { at: self.random.below(6) as u64, fault, lasting: false, only: None };
        let lasting = fault == DiskFault::Full && self.random.one_in(2);
        // A disk that accepts every write and fails every sync.
        let fails_sync = fault == DiskFault::Io && self.random.one_in(2);
        let only = fails_sync.then_some(crate::disk::DiskOperation::Sync);
        let at = if fails_sync { 0 } else { plan.at };
        let plan = FaultPlan { at, lasting: lasting || fails_sync, only, ..plan };
        self.record_event(&format!("is to meet {plan:?}"), node);
        let at = &mut self.nodes[node];
        at.record.count_branch(match fault {
            DiskFault::KillBefore | DiskFault::KillAfter | DiskFault::KillHalfway => {
                "a death at an operation was planned"
            }
            DiskFault::Full => "a full disk was planned",
            DiskFault::Io => "an input-output error was planned",
            DiskFault::Short => "a short write was planned",
        });
        if let Some(life) = &at.process {
            life.disk.set_fault_plan(Some(plan));
        }
        Ok(())
    }

    /// Frees disk space and tells a pod that could not write.
    pub(super) fn free_space(&mut self, node: usize) -> Result<(), String> {
        self.disk.set_fault_plan(None);
        let back = self.nodes[node].process.as_mut().is_some_and(SimProcess::try_restore_ballast);
        if back {
            if let Some(life) = &mut self.nodes[node].process {
                life.is_full = false;
            }
            self.nodes[node].record.count_branch("space came back");
            self.feed_input(node, InputKind::StorageRestored)?;
        }
        Ok(())
    }

    /// Tries to open a session that a pod holds.
    pub(super) fn try_second_writer(&mut self, node: usize) -> Result<(), String> {
        let intruder = self.disk.new_process();
        let outcome = store_on(&intruder).open(self.nodes[node].id);
        let verdict = match outcome {
            Err(StoreError::Held { .. }) => {
                self.nodes[node].record.count_branch("a second writer was refused");
                Ok(())
            }
            Err(_) if !self.is_settling => Ok(()),
            Err(error) => Err(format!("a second writer got `{error}`")),
            Ok(_) => Err("two writers hold one session".to_owned()),
        };
        intruder.kill();
        verdict
    }
}
