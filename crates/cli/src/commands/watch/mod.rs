//! Watch and steer live pods.

pub(crate) mod cancel;
pub(crate) mod pause;
pub(crate) mod ps;
pub(crate) mod read;
pub(crate) mod resume;
pub(crate) mod run_control;
pub(crate) mod send;
pub(crate) mod stop;
pub(crate) mod tail;
pub(crate) mod tail_tree;
pub(crate) mod top;
pub(crate) mod wait;
