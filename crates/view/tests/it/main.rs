//! Stories of the view: incoming entries and events, and the blocks that the user sees.

mod folding;
mod frames;
mod live_matches_log;
mod log_builder;
mod pages;
mod random_entries;
mod random_log;
mod real_logs;
mod stories;
