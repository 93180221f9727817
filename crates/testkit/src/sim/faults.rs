//! What goes wrong: deaths, power cuts, faults of the disk, a second writer.

use super::*;

impl Sim {
    pub(super) fn kill(&mut self, node: usize) -> Result<(), String> {
        self.nodes[node].ground.meet("a process was killed");
        self.end(node, Death::Kill)
    }

    pub(super) fn cut_power(&mut self) -> Result<(), String> {
        if !self.chance.one_in(3) {
            return Ok(());
        }
        let seed = if self.chance.one_in(2) { Some(self.chance.next()) } else { None };
        self.restart_machine(seed)
    }

    pub(super) fn restart_machine(&mut self, seed: Option<u64>) -> Result<(), String> {
        self.distrusted = false;
        self.disk.plan(None);
        self.note(&format!("power cut {seed:?}"), 0);
        self.disk.cut_power(seed);
        for node in 0..PODS {
            if self.nodes[node].life.is_some() {
                self.nodes[node].ground.meet(if seed.is_some() {
                    "the power was cut, torn"
                } else {
                    "the power was cut"
                });
                self.end(node, Death::PowerLost)?;
            }
        }
        Ok(())
    }

    pub(super) fn fault(&mut self, node: usize) -> Result<(), String> {
        let fault = *self.chance.pick(&Fault::ALL).expect("there are faults");
        let plan = Plan { at: self.chance.below(6) as u64, fault, lasting: false, only: None };
        let lasting = fault == Fault::Full && self.chance.one_in(2);
        // A disk that takes everything and syncs nothing.
        let deaf = fault == Fault::Io && self.chance.one_in(2);
        let only = deaf.then_some(crate::disk::Operation::Sync);
        let at = if deaf { 0 } else { plan.at };
        let plan = Plan { at, lasting: lasting || deaf, only, ..plan };
        self.note(&format!("is to meet {plan:?}"), node);
        let at = &mut self.nodes[node];
        at.ground.meet(match fault {
            Fault::KillBefore | Fault::KillAfter | Fault::KillHalfway => {
                "a death at an operation was planned"
            }
            Fault::Full => "a full disk was planned",
            Fault::Io => "an input-output error was planned",
            Fault::Short => "a short write was planned",
        });
        if let Some(life) = &at.life {
            life.disk.plan(Some(plan));
        }
        Ok(())
    }

    /// Space comes back; a pod that could not write hears of it.
    pub(super) fn space(&mut self, node: usize) -> Result<(), String> {
        self.disk.plan(None);
        let back = self.nodes[node].life.as_mut().is_some_and(Life::space_is_back);
        if back {
            if let Some(life) = &mut self.nodes[node].life {
                life.full = false;
            }
            self.nodes[node].ground.meet("space came back");
            self.feed(node, What::StorageBack)?;
        }
        Ok(())
    }

    /// Somebody else wants the session while a pod holds it.
    pub(super) fn second_writer(&mut self, node: usize) -> Result<(), String> {
        let intruder = self.disk.process();
        let outcome = store_on(&intruder).open(self.nodes[node].id);
        let verdict = match outcome {
            Err(StoreError::Held { .. }) => {
                self.nodes[node].ground.meet("a second writer was refused");
                Ok(())
            }
            Err(_) if !self.calm => Ok(()),
            Err(error) => Err(format!("a second writer was told `{error}`")),
            Ok(_) => Err("two writers hold one session".to_owned()),
        };
        intruder.kill();
        verdict
    }
}
