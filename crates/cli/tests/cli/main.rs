//! The real binary, in a home of its own: what a person types, what comes back, what is left behind.

mod crash;
mod docs;
mod exec;
mod trouble;
mod world;
