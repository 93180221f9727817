//! Git: what a person's own git would run in the repositories of a write scope, and what a sandboxed command changed there.
//!
//! Here: git's configuration format (`config`), what settings mean (`settings`), repositories and what their settings and
//! links lead to (`repository`, `targets`), finding them again cheaply (`scan`), comparing before and after a command
//! (`verdict`, `guard`), moving aside what runs code (`quarantine`). No git is started: a repository of somebody else's
//! making would decide what that runs. Elsewhere: what holds a target while a command runs (`exec`, `files`).

pub mod config;
mod guard;
mod places;
mod quarantine;
mod repository;
mod scan;
pub mod settings;
mod targets;
mod verdict;

pub use guard::{Ground, Guard, Notes, Tell, Watch, is_of_a_bare_repository};
pub use repository::{ConfigFile, Repository, user_files, with_includes};
pub use scan::{Area, DENIED, DIRECTORIES, Entry, Kind, REPOSITORIES, Scanner, Survey};
pub use targets::{Finder, TARGETS, Target};
