//! What is covered even where a grant would reach it: secrets of the home directory, our own directories.
//!
//! Home is readable in these fences, so Landlock alone would let the reader through.

use std::fs;

use crate::inside::{Ground, holds, lists, read};
use crate::probe::{Probe, Seen, Wall, probe, tried};
use crate::sys::{c, sys};

pub(super) const PROBES: &[Probe] = &[
    probe("home-ssh-key", "openat", Wall::Masks, |g| read(g.at("home/.ssh/id_ed25519"))),
    probe("home-ssh-list", "getdents64", Wall::Masks, |g| lists(g.at("home/.ssh"), "id_ed25519")),
    probe("home-ssh-authorized", "openat O_CREAT", Wall::LandlockFiles, |g| {
        tried(fs::write(g.at("home/.ssh/authorized_keys"), "planted"))
    }),
    probe("home-aws", "openat", Wall::Masks, |g| read(g.at("home/.aws/credentials"))),
    probe("home-gnupg", "openat", Wall::Masks, |g| read(g.at("home/.gnupg/private-keys-v1.d/key"))),
    probe("home-browser", "openat", Wall::Masks, |g| read(g.at("home/.mozilla/firefox/p/logins.json"))),
    probe("home-secret-file", "openat", Wall::Masks, |g| read(g.at("home/.netrc"))),
    probe("home-by-proc", "openat /proc/self/root", Wall::Masks, |g| {
        let key = g.at("home/.ssh/id_ed25519");
        read(format!("/proc/self/root{}", key.display()))
    }),
    probe("home-by-link", "symlink, openat", Wall::Masks, |g| {
        match std::os::unix::fs::symlink(g.at("home/.ssh"), g.own("link")) {
            Ok(()) => read(g.own("link/id_ed25519")),
            Err(error) => Seen::Unclear(error.to_string()),
        }
    }),
    probe("home-path-fd", "openat O_PATH, openat", Wall::Masks, |g| {
        match sys!(SYS_openat, libc::AT_FDCWD, c(g.at("home/.ssh")), libc::O_PATH | libc::O_DIRECTORY) {
            Ok(fd) => read(format!("/proc/self/fd/{fd}/id_ed25519")),
            err => tried(err),
        }
    }),
    probe("our-config", "openat", Wall::Masks, |g| read(g.at("home/.config/minke/config.toml"))),
    probe("our-keys", "openat", Wall::Masks, |g| read(g.at("home/.config/minke/secrets/anthropic"))),
    probe("our-sessions", "openat", Wall::Masks, |g| read(g.at("home/.local/share/minke/sessions/s/log"))),
    probe("our-sessions-list", "getdents64", Wall::Masks, |g| {
        lists(g.at("home/.local/share/minke/sessions"), "s")
    }),
    probe("our-table", "openat", Wall::LandlockFiles, |g| read(g.at("runtime/scope.json"))),
    probe("other-pods-tmp", "openat", Wall::LandlockFiles, |g| read(g.at("runtime/pods/other/tmp/file"))),
    probe("other-pods-output", "openat", Wall::LandlockFiles, |g| {
        read(g.at("runtime/pods/other/output/1.txt"))
    }),
    probe("own-lease", "openat O_WRONLY", Wall::LandlockFiles, |g| {
        tried(fs::OpenOptions::new().append(true).open(g.at("runtime/pods/probe/lease")))
    }),
    probe("own-fences-lock", "openat, flock", Wall::LandlockFiles, |g| {
        let opened = fs::File::open(g.at("runtime/pods/probe/fences"));
        tried(opened.and_then(|file| {
            use std::os::fd::AsRawFd;
            sys!(SYS_flock, file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB)
        }))
    }),
    probe("environment-secret", "execve envp", Wall::Environment, |_| {
        match std::env::vars().find(|(_, value)| holds(value.as_bytes())) {
            Some((name, _)) => Seen::Done(name),
            None => Seen::Held("not passed".to_owned()),
        }
    })
    .bare(crate::probe::Bare::Never("the environment is filtered in every tier")),
    probe("environment-plain", "execve envp", Wall::Environment, |_| {
        match std::env::var("MINKE_PROBE_PLAIN") {
            Ok(value) => Seen::Done(value),
            Err(_) => Seen::Held("not passed".to_owned()),
        }
    })
    .bare(crate::probe::Bare::Never("the environment is filtered in every tier")),
    probe("init-environ", "openat /proc/1/environ", Wall::LandlockFiles, |_| read("/proc/1/environ"))
        .bare(crate::probe::Bare::Never("without a pid namespace 1 is the machine's init")),
    probe("starter-environ", "openat /proc/PPID/environ", Wall::LandlockFiles, |g| of_starter(g, "environ"))
        .bare(crate::probe::Bare::Never("it has none")),
    probe("starter-memory", "openat /proc/PPID/mem", Wall::LandlockFiles, |g| {
        tried(fs::File::open(format!("/proc/{}/mem", g.fact("starter"))))
    })
    .bare(NOT_DUMPABLE),
    probe("starter-descriptors", "openat /proc/PPID/fd/0", Wall::LandlockFiles, |g| {
        // The line to the pod: whoever has it can speak for the helper.
        tried(fs::read_link(format!("/proc/{}/fd/0", g.fact("starter"))))
    })
    .bare(NOT_DUMPABLE),
    probe("starter-program", "openat /proc/PPID/exe O_WRONLY", Wall::LandlockFiles, |g| {
        tried(fs::OpenOptions::new().append(true).open(format!("/proc/{}/exe", g.fact("starter"))))
    })
    .bare(NOT_DUMPABLE),
];

const NOT_DUMPABLE: crate::probe::Bare =
    crate::probe::Bare::Never("the starter of a fence hides itself, or its program runs and is busy");

/// The process that started the batch: the fence's init in A, the watcher in B.
fn of_starter(g: &Ground, file: &str) -> Seen {
    read(format!("/proc/{}/{file}", g.fact("starter")))
}
