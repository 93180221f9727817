//! What no tier hides: questions about files outside that open nothing. They are listed in `docs/reference/sandbox.md`, and a tier
//! that begins to hide one is to be noticed as well.

use std::fs;

use crate::inside::read;
use crate::probe::{Probe, open, tried, tried_if};
use crate::sys::{c, sys};

pub(super) const PROBES: &[Probe] = &[
    open("stat-outside", "newfstatat", |g| tried(fs::symlink_metadata(g.outside("secret")))),
    open("readlink-outside", "readlink", |g| tried(fs::read_link(g.outside("pointer")))),
    open("getxattr-outside", "getxattr", |g| {
        let mut value = [0u8; 32];
        let (path, name) = (c(g.outside("marked")), c("user.minke"));
        tried_if(sys!(SYS_getxattr, path, name, value.as_mut_ptr(), value.len()), &[libc::EOPNOTSUPP])
    }),
    open("watch-outside", "inotify_add_watch", |g| {
        let made = sys!(SYS_inotify_init1, 0);
        tried(made.and_then(|fd| sys!(SYS_inotify_add_watch, fd, c(g.outside("")), libc::IN_CREATE)))
    }),
    // Made by somebody outside before: the file tools replace such a file instead of writing through it.
    open("hard-link-of-old", "openat", |g| read(g.work("old-link"))),
];
