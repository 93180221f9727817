//! Mounts and namespaces: creating a place without restrictions.

use std::fs;
use std::io;

use crate::attacker::{AttackContext, exit_now, fork_process, read_secret, wait_for_child};
use crate::probe::{
    ProbeOutcome, SandboxProbe, TestedRestriction, UnsandboxedResult, attack_probe, outcome_of,
};
use crate::sys::{sys, to_c_string};

/// `CLONE_NEWTIME`, which libc does not define.
const NEW_TIME: u64 = 0x80;
const OPEN_TREE_CLONE: u64 = 1;

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("unshare-user", "unshare CLONE_NEWUSER", TestedRestriction::SeccompCalls, |_| {
        unshare_flags(libc::CLONE_NEWUSER as u64)
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("unshare-mount", "unshare CLONE_NEWNS", TestedRestriction::SeccompCalls, |_| {
        unshare_flags(libc::CLONE_NEWNS as u64)
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("unshare-pid", "unshare CLONE_NEWPID", TestedRestriction::SeccompCalls, |_| {
        unshare_flags(libc::CLONE_NEWPID as u64)
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("unshare-net", "unshare CLONE_NEWNET", TestedRestriction::SeccompCalls, |_| {
        unshare_flags(libc::CLONE_NEWNET as u64)
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("unshare-time", "unshare CLONE_NEWTIME", TestedRestriction::SeccompCalls, |_| {
        unshare_flags(NEW_TIME)
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe(
        "unshare-user-and-mount",
        "unshare, mount",
        TestedRestriction::SeccompCalls,
        unshare_and_mount,
    )
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("clone-user", "clone CLONE_NEWUSER", TestedRestriction::SeccompCalls, |_| {
        clone_new(libc::CLONE_NEWUSER as u64)
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("clone3-user", "clone3 CLONE_NEWUSER", TestedRestriction::SeccompCalls, |_| {
        clone3_new(libc::CLONE_NEWUSER as u64)
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("setns", "setns", TestedRestriction::SeccompCalls, |_| {
        let own = fs::File::open("/proc/self/ns/net");
        outcome_of(own.and_then(|file| {
            use std::os::fd::AsRawFd;
            sys!(SYS_setns, file.as_raw_fd(), 0)
        }))
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("setns-outside", "pidfd_open, setns", TestedRestriction::SeccompCalls, |g| {
        outcome_of(
            sys!(SYS_pidfd_open, g.fact_number("victim"), 0)
                .and_then(|fd| sys!(SYS_setns, fd, libc::CLONE_NEWNET)),
        )
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("mount-tmpfs", "mount", TestedRestriction::SeccompCalls, |g| {
        let (kind, at) = (to_c_string("tmpfs"), g.own_path("mount"));
        with_directory(&at, || {
            sys!(SYS_mount, kind, to_c_string(&at), kind, 0, 0)?;
            sys!(SYS_umount2, to_c_string(&at), libc::MNT_DETACH)
        })
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("mount-bind-outside", "mount MS_BIND", TestedRestriction::SeccompCalls, |g| {
        let at = g.own_path("mount");
        with_directory(&at, || {
            sys!(SYS_mount, to_c_string(g.path_outside("")), to_c_string(&at), 0, libc::MS_BIND, 0)?;
            sys!(SYS_umount2, to_c_string(&at), libc::MNT_DETACH)
        })
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("remount-writable", "mount MS_REMOUNT", TestedRestriction::SeccompCalls, |g| {
        // Changes nothing if it succeeds: the flags are the current ones of the grant.
        let at = g.own_path("mount");
        with_directory(&at, || {
            sys!(SYS_mount, to_c_string(&at), to_c_string(&at), 0, libc::MS_BIND, 0)?;
            let done = sys!(SYS_mount, 0, to_c_string(&at), 0, libc::MS_REMOUNT | libc::MS_BIND, 0);
            sys!(SYS_umount2, to_c_string(&at), libc::MNT_DETACH)?;
            done
        })
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("umount-mask", "umount2", TestedRestriction::SeccompCalls, |g| {
        match sys!(SYS_umount2, to_c_string(g.path_to("home/.ssh")), libc::MNT_DETACH) {
            Ok(_) => read_secret(g.path_to("home/.ssh/id_ed25519")),
            err => outcome_of(err),
        }
    })
    .unsandboxed(UnsandboxedResult::Never("nothing is mounted there without a sandbox")),
    attack_probe("pivot-root", "pivot_root", TestedRestriction::SeccompCalls, |g| {
        let work = to_c_string(g.path_in_work(""));
        outcome_with_reason(sys!(SYS_pivot_root, work, work))
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("chroot", "chroot", TestedRestriction::SeccompCalls, |g| {
        outcome_of(sys!(SYS_chroot, to_c_string(g.path_in_work(""))))
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("fsopen", "fsopen", TestedRestriction::SeccompCalls, |_| {
        outcome_of(sys!(SYS_fsopen, to_c_string("tmpfs"), 0))
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("fspick", "fspick", TestedRestriction::SeccompCalls, |_| {
        outcome_of(sys!(SYS_fspick, libc::AT_FDCWD, to_c_string("/"), 0))
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("open-tree", "open_tree OPEN_TREE_CLONE", TestedRestriction::SeccompCalls, |g| {
        outcome_of(sys!(SYS_open_tree, libc::AT_FDCWD, to_c_string(g.path_outside("")), OPEN_TREE_CLONE))
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("move-mount", "open_tree, move_mount", TestedRestriction::SeccompCalls, |g| {
        let at = g.own_path("mount");
        with_directory(&at, || {
            let tree = sys!(SYS_open_tree, libc::AT_FDCWD, to_c_string(g.path_outside("")), OPEN_TREE_CLONE)?;
            const EMPTY_PATH: i32 = 4;
            sys!(SYS_move_mount, tree, to_c_string(""), libc::AT_FDCWD, to_c_string(&at), EMPTY_PATH)?;
            sys!(SYS_umount2, to_c_string(&at), libc::MNT_DETACH)
        })
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("mount-setattr", "open_tree, mount_setattr", TestedRestriction::SeccompCalls, |g| {
        // On an unattached clone, so that nothing on the machine changes.
        let attributes = [0u64; 4];
        let tree = sys!(SYS_open_tree, libc::AT_FDCWD, to_c_string(g.path_in_work("")), OPEN_TREE_CLONE);
        outcome_of(tree.and_then(|fd| {
            sys!(
                SYS_mount_setattr,
                fd,
                to_c_string(""),
                libc::AT_EMPTY_PATH,
                attributes.as_ptr(),
                size_of_val(&attributes)
            )
        }))
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
];

fn unshare_flags(flags: u64) -> ProbeOutcome {
    outcome_of(sys!(SYS_unshare, flags))
}

/// Becomes root of a new namespace, then mounts a directory from outside.
fn unshare_and_mount(g: &AttackContext) -> ProbeOutcome {
    let at = g.own_path("mount");
    with_directory(&at, || {
        sys!(SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        sys!(
            SYS_mount,
            to_c_string(g.path_outside("")),
            to_c_string(&at),
            0,
            libc::MS_BIND | libc::MS_REC,
            0
        )?;
        fs::read(at.join("secret"))
    })
}

/// Creates a child with a flag; the child only exits.
fn clone_new(flags: u64) -> ProbeOutcome {
    match sys!(SYS_clone, flags | libc::SIGCHLD as u64, 0, 0, 0, 0) {
        Ok(0) => exit_now(),
        Ok(child) => {
            wait_for_child(child as i32);
            ProbeOutcome::Succeeded("a child".to_owned())
        }
        err => outcome_of(err),
    }
}

fn clone3_new(flags: u64) -> ProbeOutcome {
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    let arguments = [flags, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    match sys!(SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) {
        Ok(0) => exit_now(),
        Ok(child) => {
            wait_for_child(child as i32);
            ProbeOutcome::Succeeded("a child".to_owned())
        }
        err => outcome_of(err),
    }
}

fn with_directory<T>(at: &std::path::Path, attack: impl FnOnce() -> io::Result<T>) -> ProbeOutcome {
    match fs::create_dir(at) {
        Ok(()) => outcome_of(attack()),
        Err(error) => ProbeOutcome::Unclear(format!("mkdir in the grant: {error}")),
    }
}

/// An error about the arguments shows that no restriction stopped the call.
fn outcome_with_reason<T>(result: io::Result<T>) -> ProbeOutcome {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBUSY)) => {
            ProbeOutcome::Succeeded(format!("got as far as {}", crate::sys::error_name(&error)))
        }
        other => outcome_of(other),
    }
}

/// Creates a child in the ordinary way, which `clone` must still allow.
pub(super) fn check_children(_: &AttackContext) -> ProbeOutcome {
    match fork_process() {
        Ok(None) => exit_now(),
        Ok(Some(child)) if wait_for_child(child) == Some(0) => ProbeOutcome::Succeeded("a child".to_owned()),
        Ok(Some(_)) => ProbeOutcome::Stopped("it died".to_owned()),
        Err(error) => outcome_of::<()>(Err(error)),
    }
}
