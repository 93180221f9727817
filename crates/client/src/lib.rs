//! Client: communication with pods.
//!
//! A typed connection (`connection`), and finding a session (`find`). The effect of a method is decided in `pod`;
//! the other end of the socket is in `driver`. Elsewhere: starting a pod and delivery to a session without one
//! (`launch`).

mod ancestors;
mod connection;
mod find;
mod home;

pub use ancestors::{MAX_ANCESTORS, find_ancestors};
pub use connection::{Connection, ConnectionError};
pub use find::{FindError, SessionMatch, find_session};
pub use home::UserHome;
