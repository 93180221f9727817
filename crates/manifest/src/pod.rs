//! `pod`: the process and its bounds.

use crate::form::{Count, Seconds};
use crate::key::section;

section! {
    /// The process of a pod.
    PodSection at "pod" {
        /// Seconds without client, child, command or run after which the process ends; 0 = never.
        idle_exit: u64 = 30 * 60, Seconds, Override, Nothing, false;
    }
    besides {
        limits: Limits;
    }
}

section! {
    /// How many of each there may be.
    Limits at "pod.limits" {
        /// Accepted inputs that wait, and notes from `notify` that wait.
        queue: u64 = 64, Count, Override, Lower, false;
        /// Alerts kept for late clients.
        alerts: u64 = 512, Count, Override, Lower, false;
        /// Waiting methods of one client.
        methods: u64 = 64, Count, Override, Lower, false;
        /// Of the tree: how many pods may be above one.
        depth: u64 = 4, Count, Override, Lower, false;
        /// Live children of one pod.
        children: u64 = 16, Count, Override, Lower, false;
        /// Live pods of one user.
        pods_per_user: u64 = 256, Count, Override, Lower, false;
    }
    besides {}
}
