//! Whose mind a process has: the product's, or a stand-in that is quicker.

use minke_pod::{Input, Pod, State, Step, What};

use super::standin::StandIn;

/// Which minds grow in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Minds {
    /// `minke_pod::Pod`.
    Product,
    StandIn,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a handful of them live at a time")]
pub(super) enum Mind {
    Product(Pod),
    StandIn(StandIn),
}

impl Mind {
    pub(super) fn new(minds: Minds, state: State) -> Mind {
        match minds {
            Minds::Product => Mind::Product(Pod::new(state)),
            Minds::StandIn => Mind::StandIn(StandIn::new(state)),
        }
    }

    pub(super) fn state(&self) -> &State {
        match self {
            Mind::Product(pod) => pod.state(),
            Mind::StandIn(mind) => mind.state(),
        }
    }

    pub(super) fn step(&mut self, input: Input) -> Step {
        match self {
            Mind::Product(pod) => pod.step(input),
            Mind::StandIn(mind) => {
                if let What::CallEnded { call_id, .. } = &input.what {
                    mind.call_ended(call_id);
                }
                mind.step(input)
            }
        }
    }
}
