//! The pod of a process: the product's, or a faster stand-in.

use minke_pod::{InputKind, Pod, PodInput, State, Step};

use super::stand_in::StandInPod;

/// Which pods a simulation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodKind {
    /// `minke_pod::Pod`.
    Product,
    StandIn,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a handful of them live at a time")]
pub(super) enum TreePod {
    Product(Pod),
    StandIn(StandInPod),
}

impl TreePod {
    pub(super) fn new(minds: PodKind, state: State) -> TreePod {
        match minds {
            PodKind::Product => TreePod::Product(Pod::new(state)),
            PodKind::StandIn => TreePod::StandIn(StandInPod::new(state)),
        }
    }

    pub(super) fn state(&self) -> &State {
        match self {
            TreePod::Product(pod) => pod.state(),
            TreePod::StandIn(mind) => mind.state(),
        }
    }

    pub(super) fn step(&mut self, input: PodInput) -> Step {
        match self {
            TreePod::Product(pod) => pod.step(input),
            TreePod::StandIn(mind) => {
                if let InputKind::CallEnded { call_id, .. } = &input.kind {
                    mind.remove_call(call_id);
                }
                mind.step(input)
            }
        }
    }
}
