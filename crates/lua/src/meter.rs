//! The meter: how much a text may still do.
//!
//! Here: the bounds, and counting against them. Luau lets a host look at every call, return, turn of a loop and step of a
//! pattern: each is one instruction here. What runs longer than one is charged by its size (`charges`).
//! Invariant: once a bound is reached every further look says so again, so that no `pcall` gets around it
//! (`every_hostile_text_ends_with_an_error`).

use std::cell::Cell;
use std::rc::Rc;

/// Instructions of one evaluation.
pub const INSTRUCTIONS: u64 = 10_000_000;
/// Memory of one evaluation.
pub const MEMORY_BYTES: usize = 64 << 20;
/// The stack that a thread needs on which a text is evaluated: the compiler goes deep before it refuses.
pub const STACK_BYTES: usize = 16 << 20;
/// The clock is asked once in so many instructions.
const CLOCK_EVERY: u64 = 256;

/// What one evaluation may use. Time is told by whoever has a clock; it is a backstop and gives an error, never another
/// result.
#[derive(Clone)]
pub struct Bounds {
    pub instructions: u64,
    pub memory: usize,
    pub overdue: Rc<dyn Fn() -> bool>,
}

impl Bounds {
    /// The usual bounds.
    pub fn usual(overdue: Rc<dyn Fn() -> bool>) -> Bounds {
        Bounds { instructions: INSTRUCTIONS, memory: MEMORY_BYTES, overdue }
    }
}

/// Which bound was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    #[error("the profile does too much: it is stopped after {INSTRUCTIONS} instructions")]
    Instructions,
    #[error("the profile needs too much memory: it may use {} MiB", MEMORY_BYTES >> 20)]
    Memory,
    #[error("the profile takes too long: it is stopped after some seconds")]
    Time,
}

/// Counts down.
pub(crate) struct Meter {
    left: Cell<u64>,
    until_clock: Cell<u64>,
    reached: Cell<Option<Stop>>,
    overdue: Rc<dyn Fn() -> bool>,
}

impl Meter {
    pub(crate) fn new(bounds: &Bounds) -> Rc<Meter> {
        Rc::new(Meter {
            left: Cell::new(bounds.instructions),
            until_clock: Cell::new(CLOCK_EVERY),
            reached: Cell::new(None),
            overdue: Rc::clone(&bounds.overdue),
        })
    }

    pub(crate) fn charge(&self, instructions: u64) -> Result<(), Stop> {
        if let Some(stop) = self.reached.get() {
            return Err(stop);
        }
        let Some(left) = self.left.get().checked_sub(instructions) else {
            return self.stop(Stop::Instructions);
        };
        self.left.set(left);
        match self.until_clock.get().checked_sub(instructions) {
            Some(until) if until > 0 => self.until_clock.set(until),
            _ => {
                self.until_clock.set(CLOCK_EVERY);
                if (self.overdue)() {
                    return self.stop(Stop::Time);
                }
            }
        }
        Ok(())
    }

    fn stop(&self, stop: Stop) -> Result<(), Stop> {
        self.reached.set(Some(stop));
        Err(stop)
    }

    pub(crate) fn reached(&self) -> Option<Stop> {
        self.reached.get()
    }
}
