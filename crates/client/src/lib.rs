//! Client: how one reaches a pod.
//!
//! A typed connection (`connection`), who is meant by a name (`find`), starting a pod's process (`launch`), and the one
//! way to wake one (`deliver`). What a pod does with a method is decided in `pod`; the socket's other end is `driver`.

mod above;
mod connection;
mod deliver;
mod find;
mod inherit;
mod launch;

pub use above::{ABOVE_MOST, above};
pub use connection::{Connection, ConnectionError};
pub use deliver::{
    DeliverError, Delivered, Delivery, Home, Reached, VisitStep, Visited, deliver, reach, visit, wake,
};
pub use find::{FindError, Found, find};
pub use inherit::take_inherited;
pub use launch::{Bond, Failed, Launch, LaunchError, Launched, Ready, ReadyLine, launch};
