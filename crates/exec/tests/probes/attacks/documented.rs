//! What no backend hides: queries about files outside that open nothing. They are listed in
//! `docs/reference/sandbox.md`. The test also notices a backend that begins to hide one.

use std::fs;

use crate::attacker::read_secret;
use crate::probe::{SandboxProbe, open_probe, outcome_of, outcome_unless};
use crate::sys::{sys, to_c_string};

pub(super) const PROBES: &[SandboxProbe] = &[
    open_probe("stat-outside", "newfstatat", |g| outcome_of(fs::symlink_metadata(g.path_outside("secret")))),
    open_probe("readlink-outside", "readlink", |g| outcome_of(fs::read_link(g.path_outside("pointer")))),
    open_probe("getxattr-outside", "getxattr", |g| {
        let mut value = [0u8; 32];
        let (path, name) = (to_c_string(g.path_outside("marked")), to_c_string("user.minke"));
        outcome_unless(sys!(SYS_getxattr, path, name, value.as_mut_ptr(), value.len()), &[libc::EOPNOTSUPP])
    }),
    open_probe("watch-outside", "inotify_add_watch", |g| {
        let made = sys!(SYS_inotify_init1, 0);
        outcome_of(
            made.and_then(|fd| {
                sys!(SYS_inotify_add_watch, fd, to_c_string(g.path_outside("")), libc::IN_CREATE)
            }),
        )
    }),
    // A link created outside earlier: the file tools replace such a file instead of writing through it.
    open_probe("hard-link-of-old", "openat", |g| read_secret(g.path_in_work("old-link"))),
];
