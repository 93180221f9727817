//! Worlds, terminals and servers for the tests.

pub(crate) mod http;
pub(crate) mod live_server;
pub(crate) mod mock_world;
pub(crate) mod pty;
pub(crate) mod world;
