//! Client: communication with pods.
//!
//! A typed connection (`connection`), finding a session (`find`), starting a pod process (`launch`), and
//! delivery to a session with or without a pod (`deliver`). The effect of a method is decided in `pod`; the
//! other end of the socket is in `driver`.

mod ancestors;
mod connection;
mod deliver;
mod find;
mod inherit;
mod launch;

pub use ancestors::{MAX_ANCESTORS, find_ancestors};
pub use connection::{Connection, ConnectionError};
pub use deliver::{
    DeliverError, Delivery, DeliveryOutcome, OfflineChange, OfflineStep, ReachablePod, UserHome,
    deliver_method, reach_pod, wake_session, write_offline_edit,
};
pub use find::{FindError, SessionMatch, find_session};
pub use inherit::take_inherited_fd;
pub use launch::{
    LaunchError, LaunchedPod, PodLaunch, PodLifetime, PodReady, PodStartFailure, ReadyLine, launch_pod,
};
