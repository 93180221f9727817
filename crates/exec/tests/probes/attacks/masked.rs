//! Masked paths inside readable directories: secrets of the home directory, Minke's own directories.
//!
//! The home directory is readable in these sandboxes, so Landlock alone would allow reading them.

use std::fs;

use crate::attacker::{AttackContext, contains_canary, lists_name, read_secret};
use crate::probe::{ProbeOutcome, SandboxProbe, TestedRestriction, attack_probe, outcome_of};
use crate::sys::{sys, to_c_string};

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("home-ssh-key", "openat", TestedRestriction::Masks, |g| {
        read_secret(g.path_to("home/.ssh/id_ed25519"))
    }),
    attack_probe("home-ssh-list", "getdents64", TestedRestriction::Masks, |g| {
        lists_name(g.path_to("home/.ssh"), "id_ed25519")
    }),
    attack_probe("home-ssh-authorized", "openat O_CREAT", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::write(g.path_to("home/.ssh/authorized_keys"), "planted"))
    }),
    attack_probe("home-aws", "openat", TestedRestriction::Masks, |g| {
        read_secret(g.path_to("home/.aws/credentials"))
    }),
    attack_probe("home-gnupg", "openat", TestedRestriction::Masks, |g| {
        read_secret(g.path_to("home/.gnupg/private-keys-v1.d/key"))
    }),
    attack_probe("home-browser", "openat", TestedRestriction::Masks, |g| {
        read_secret(g.path_to("home/.mozilla/firefox/p/logins.json"))
    }),
    attack_probe("home-secret-file", "openat", TestedRestriction::Masks, |g| {
        read_secret(g.path_to("home/.netrc"))
    }),
    attack_probe("home-by-proc", "openat /proc/self/root", TestedRestriction::Masks, |g| {
        let key = g.path_to("home/.ssh/id_ed25519");
        read_secret(format!("/proc/self/root{}", key.display()))
    }),
    attack_probe("home-by-link", "symlink, openat", TestedRestriction::Masks, |g| {
        match std::os::unix::fs::symlink(g.path_to("home/.ssh"), g.own_path("link")) {
            Ok(()) => read_secret(g.own_path("link/id_ed25519")),
            Err(error) => ProbeOutcome::Unclear(error.to_string()),
        }
    }),
    attack_probe("home-path-fd", "openat O_PATH, openat", TestedRestriction::Masks, |g| {
        match sys!(
            SYS_openat,
            libc::AT_FDCWD,
            to_c_string(g.path_to("home/.ssh")),
            libc::O_PATH | libc::O_DIRECTORY
        ) {
            Ok(fd) => read_secret(format!("/proc/self/fd/{fd}/id_ed25519")),
            err => outcome_of(err),
        }
    }),
    attack_probe("our-config", "openat", TestedRestriction::Masks, |g| {
        read_secret(g.path_to("home/.config/minke/config.toml"))
    }),
    attack_probe("our-keys", "openat", TestedRestriction::Masks, |g| {
        read_secret(g.path_to("home/.config/minke/secrets/anthropic"))
    }),
    attack_probe("our-sessions", "openat", TestedRestriction::Masks, |g| {
        read_secret(g.path_to("home/.local/share/minke/sessions/s/log"))
    }),
    attack_probe("our-sessions-list", "getdents64", TestedRestriction::Masks, |g| {
        lists_name(g.path_to("home/.local/share/minke/sessions"), "s")
    }),
    attack_probe("our-table", "openat", TestedRestriction::LandlockFiles, |g| {
        read_secret(g.path_to("runtime/scope.json"))
    }),
    attack_probe("other-pods-tmp", "openat", TestedRestriction::LandlockFiles, |g| {
        read_secret(g.path_to("runtime/pods/other/tmp/file"))
    }),
    attack_probe("other-pods-output", "openat", TestedRestriction::LandlockFiles, |g| {
        read_secret(g.path_to("runtime/pods/other/output/1.txt"))
    }),
    attack_probe("own-lease", "openat O_WRONLY", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::OpenOptions::new().append(true).open(g.path_to("runtime/pods/probe/lease")))
    }),
    attack_probe("own-sandbox-lock", "openat, flock", TestedRestriction::LandlockFiles, |g| {
        let opened = fs::File::open(g.path_to("runtime/pods/probe/sandboxes"));
        outcome_of(opened.and_then(|file| {
            use std::os::fd::AsRawFd;
            sys!(SYS_flock, file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB)
        }))
    }),
    attack_probe("environment-secret", "execve envp", TestedRestriction::Environment, |_| {
        match std::env::vars().find(|(_, value)| contains_canary(value.as_bytes())) {
            Some((name, _)) => ProbeOutcome::Succeeded(name),
            None => ProbeOutcome::Stopped("not passed".to_owned()),
        }
    })
    .unsandboxed(crate::probe::UnsandboxedResult::Never("the environment is filtered in every backend")),
    attack_probe(
        "environment-plain",
        "execve envp",
        TestedRestriction::Environment,
        |_| match std::env::var("MINKE_PROBE_PLAIN") {
            Ok(value) => ProbeOutcome::Succeeded(value),
            Err(_) => ProbeOutcome::Stopped("not passed".to_owned()),
        },
    )
    .unsandboxed(crate::probe::UnsandboxedResult::Never("the environment is filtered in every backend")),
    attack_probe("init-environ", "openat /proc/1/environ", TestedRestriction::LandlockFiles, |_| {
        read_secret("/proc/1/environ")
    })
    .unsandboxed(crate::probe::UnsandboxedResult::Never(
        "without a pid namespace, process 1 is the machine's init",
    )),
    attack_probe("starter-environ", "openat /proc/PPID/environ", TestedRestriction::LandlockFiles, |g| {
        starter_path(g, "environ")
    })
    .unsandboxed(crate::probe::UnsandboxedResult::Never("it has none")),
    attack_probe("starter-memory", "openat /proc/PPID/mem", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::File::open(format!("/proc/{}/mem", g.fact_text("starter"))))
    })
    .unsandboxed(NOT_DUMPABLE),
    attack_probe("starter-descriptors", "openat /proc/PPID/fd/0", TestedRestriction::LandlockFiles, |g| {
        // The control socket: a process that has it can act as the helper.
        outcome_of(fs::read_link(format!("/proc/{}/fd/0", g.fact_text("starter"))))
    })
    .unsandboxed(NOT_DUMPABLE),
    attack_probe(
        "starter-program",
        "openat /proc/PPID/exe O_WRONLY",
        TestedRestriction::LandlockFiles,
        |g| {
            outcome_of(
                fs::OpenOptions::new().append(true).open(format!("/proc/{}/exe", g.fact_text("starter"))),
            )
        },
    )
    .unsandboxed(NOT_DUMPABLE),
];

const NOT_DUMPABLE: crate::probe::UnsandboxedResult =
    crate::probe::UnsandboxedResult::Never("the supervising process hides itself, or its program is in use");

/// Returns the path of the process that started the probes: the sandbox's init or its supervisor.
fn starter_path(g: &AttackContext, file: &str) -> ProbeOutcome {
    read_secret(format!("/proc/{}/{file}", g.fact_text("starter")))
}
