//! A whole pod, in a thread of the test, spoken to over its real socket.

mod runs;
mod starting;
mod streams;
mod support;
mod wire;
