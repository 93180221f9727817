//! Limits: how much an evaluation may still do.
//!
//! Here: the limits and the counters. Luau calls the host at every call, return, loop iteration and pattern
//! step, and each costs one instruction. A longer operation is charged by its size (`instruction_costs`).
//! Invariant: after a limit is exceeded every further check fails, so no `pcall` can bypass it
//! (`every_hostile_text_ends_with_an_error`).

use std::cell::Cell;
use std::rc::Rc;

/// Instruction limit of one evaluation.
pub const MAX_INSTRUCTIONS: u64 = 10_000_000;
/// Memory limit of one evaluation.
pub const MAX_MEMORY_BYTES: usize = 64 << 20;
/// The stack size that the evaluating thread needs. The compiler recurses deeply before it fails.
pub const STACK_BYTES: usize = 16 << 20;
/// Number of instructions between two reads of the clock.
const CLOCK_INTERVAL: u64 = 256;

/// The limits of one evaluation. The caller provides the clock. The time limit is a backstop: it causes an
/// error, never a different result.
#[derive(Clone)]
pub struct EvaluationLimits {
    pub instructions: u64,
    pub memory: usize,
    pub is_overdue: Rc<dyn Fn() -> bool>,
}

impl EvaluationLimits {
    /// Returns the default limits.
    pub fn default_limits(is_overdue: Rc<dyn Fn() -> bool>) -> EvaluationLimits {
        EvaluationLimits { instructions: MAX_INSTRUCTIONS, memory: MAX_MEMORY_BYTES, is_overdue }
    }
}

/// The limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExceededLimit {
    #[error("the profile does too much: it was stopped after {MAX_INSTRUCTIONS} instructions")]
    Instructions,
    #[error("the profile needs too much memory: it may use {} MiB", MAX_MEMORY_BYTES >> 20)]
    Memory,
    #[error("the profile takes too long: it was stopped after some seconds")]
    Time,
}

/// Counts instructions and time against the limits.
pub(crate) struct InstructionMeter {
    instructions_left: Cell<u64>,
    until_clock: Cell<u64>,
    exceeded: Cell<Option<ExceededLimit>>,
    is_overdue: Rc<dyn Fn() -> bool>,
}

impl InstructionMeter {
    pub(crate) fn new(bounds: &EvaluationLimits) -> Rc<InstructionMeter> {
        Rc::new(InstructionMeter {
            instructions_left: Cell::new(bounds.instructions),
            until_clock: Cell::new(CLOCK_INTERVAL),
            exceeded: Cell::new(None),
            is_overdue: Rc::clone(&bounds.is_overdue),
        })
    }

    pub(crate) fn charge_instructions(&self, instructions: u64) -> Result<(), ExceededLimit> {
        if let Some(stop) = self.exceeded.get() {
            return Err(stop);
        }
        let Some(left) = self.instructions_left.get().checked_sub(instructions) else {
            return self.stop_with(ExceededLimit::Instructions);
        };
        self.instructions_left.set(left);
        match self.until_clock.get().checked_sub(instructions) {
            Some(until) if until > 0 => self.until_clock.set(until),
            _ => {
                self.until_clock.set(CLOCK_INTERVAL);
                if (self.is_overdue)() {
                    return self.stop_with(ExceededLimit::Time);
                }
            }
        }
        Ok(())
    }

    fn stop_with(&self, stop: ExceededLimit) -> Result<(), ExceededLimit> {
        self.exceeded.set(Some(stop));
        Err(stop)
    }

    pub(crate) fn exceeded_limit(&self) -> Option<ExceededLimit> {
        self.exceeded.get()
    }
}
