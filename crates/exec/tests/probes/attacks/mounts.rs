//! Mounts and namespaces: making a place where the walls do not stand.

use std::fs;
use std::io;

use crate::inside::{Ground, fork, leave, read, wait};
use crate::probe::{Bare, Probe, Seen, Wall, probe, tried};
use crate::sys::{c, sys};

/// `CLONE_NEWTIME`, which the C library does not name.
const NEW_TIME: u64 = 0x80;
const OPEN_TREE_CLONE: u64 = 1;

pub(super) const PROBES: &[Probe] = &[
    probe("unshare-user", "unshare CLONE_NEWUSER", Wall::SeccompCalls, |_| {
        unshare(libc::CLONE_NEWUSER as u64)
    })
    .bare(Bare::IfOffered),
    probe("unshare-mount", "unshare CLONE_NEWNS", Wall::SeccompCalls, |_| unshare(libc::CLONE_NEWNS as u64))
        .bare(Bare::AsRoot),
    probe("unshare-pid", "unshare CLONE_NEWPID", Wall::SeccompCalls, |_| unshare(libc::CLONE_NEWPID as u64))
        .bare(Bare::AsRoot),
    probe("unshare-net", "unshare CLONE_NEWNET", Wall::SeccompCalls, |_| unshare(libc::CLONE_NEWNET as u64))
        .bare(Bare::AsRoot),
    probe("unshare-time", "unshare CLONE_NEWTIME", Wall::SeccompCalls, |_| unshare(NEW_TIME))
        .bare(Bare::AsRoot),
    probe("unshare-user-and-mount", "unshare, mount", Wall::SeccompCalls, unshare_and_mount)
        .bare(Bare::IfOffered),
    probe("clone-user", "clone CLONE_NEWUSER", Wall::SeccompCalls, |_| clone_new(libc::CLONE_NEWUSER as u64))
        .bare(Bare::IfOffered),
    probe("clone3-user", "clone3 CLONE_NEWUSER", Wall::SeccompCalls, |_| {
        clone3_new(libc::CLONE_NEWUSER as u64)
    })
    .bare(Bare::IfOffered),
    probe("setns", "setns", Wall::SeccompCalls, |_| {
        let own = fs::File::open("/proc/self/ns/net");
        tried(own.and_then(|file| {
            use std::os::fd::AsRawFd;
            sys!(SYS_setns, file.as_raw_fd(), 0)
        }))
    })
    .bare(Bare::AsRoot),
    probe("setns-outside", "pidfd_open, setns", Wall::SeccompCalls, |g| {
        tried(
            sys!(SYS_pidfd_open, g.number("victim"), 0)
                .and_then(|fd| sys!(SYS_setns, fd, libc::CLONE_NEWNET)),
        )
    })
    .bare(Bare::AsRoot),
    probe("mount-tmpfs", "mount", Wall::SeccompCalls, |g| {
        let (kind, at) = (c("tmpfs"), g.own("mount"));
        with_dir(&at, || {
            sys!(SYS_mount, kind, c(&at), kind, 0, 0)?;
            sys!(SYS_umount2, c(&at), libc::MNT_DETACH)
        })
    })
    .bare(Bare::AsRoot),
    probe("mount-bind-outside", "mount MS_BIND", Wall::SeccompCalls, |g| {
        let at = g.own("mount");
        with_dir(&at, || {
            sys!(SYS_mount, c(g.outside("")), c(&at), 0, libc::MS_BIND, 0)?;
            sys!(SYS_umount2, c(&at), libc::MNT_DETACH)
        })
    })
    .bare(Bare::AsRoot),
    probe("remount-writable", "mount MS_REMOUNT", Wall::SeccompCalls, |g| {
        // Changes nothing where it succeeds: of a grant the flags are what they are already.
        let at = g.own("mount");
        with_dir(&at, || {
            sys!(SYS_mount, c(&at), c(&at), 0, libc::MS_BIND, 0)?;
            let done = sys!(SYS_mount, 0, c(&at), 0, libc::MS_REMOUNT | libc::MS_BIND, 0);
            sys!(SYS_umount2, c(&at), libc::MNT_DETACH)?;
            done
        })
    })
    .bare(Bare::AsRoot),
    probe("umount-mask", "umount2", Wall::SeccompCalls, |g| {
        match sys!(SYS_umount2, c(g.at("home/.ssh")), libc::MNT_DETACH) {
            Ok(_) => read(g.at("home/.ssh/id_ed25519")),
            err => tried(err),
        }
    })
    .bare(Bare::Never("nothing is mounted there without a fence")),
    probe("pivot-root", "pivot_root", Wall::SeccompCalls, |g| {
        let work = c(g.work(""));
        tried_with_reason(sys!(SYS_pivot_root, work, work))
    })
    .bare(Bare::AsRoot),
    probe("chroot", "chroot", Wall::SeccompCalls, |g| tried(sys!(SYS_chroot, c(g.work("")))))
        .bare(Bare::AsRoot),
    probe("fsopen", "fsopen", Wall::SeccompCalls, |_| tried(sys!(SYS_fsopen, c("tmpfs"), 0)))
        .bare(Bare::AsRoot),
    probe("fspick", "fspick", Wall::SeccompCalls, |_| tried(sys!(SYS_fspick, libc::AT_FDCWD, c("/"), 0)))
        .bare(Bare::AsRoot),
    probe("open-tree", "open_tree OPEN_TREE_CLONE", Wall::SeccompCalls, |g| {
        tried(sys!(SYS_open_tree, libc::AT_FDCWD, c(g.outside("")), OPEN_TREE_CLONE))
    })
    .bare(Bare::AsRoot),
    probe("move-mount", "open_tree, move_mount", Wall::SeccompCalls, |g| {
        let at = g.own("mount");
        with_dir(&at, || {
            let tree = sys!(SYS_open_tree, libc::AT_FDCWD, c(g.outside("")), OPEN_TREE_CLONE)?;
            const EMPTY_PATH: i32 = 4;
            sys!(SYS_move_mount, tree, c(""), libc::AT_FDCWD, c(&at), EMPTY_PATH)?;
            sys!(SYS_umount2, c(&at), libc::MNT_DETACH)
        })
    })
    .bare(Bare::AsRoot),
    probe("mount-setattr", "open_tree, mount_setattr", Wall::SeccompCalls, |g| {
        // On a copy that is mounted nowhere, so that nothing of the machine changes.
        let attributes = [0u64; 4];
        let tree = sys!(SYS_open_tree, libc::AT_FDCWD, c(g.work("")), OPEN_TREE_CLONE);
        tried(tree.and_then(|fd| {
            sys!(
                SYS_mount_setattr,
                fd,
                c(""),
                libc::AT_EMPTY_PATH,
                attributes.as_ptr(),
                size_of_val(&attributes)
            )
        }))
    })
    .bare(Bare::AsRoot),
];

fn unshare(flags: u64) -> Seen {
    tried(sys!(SYS_unshare, flags))
}

/// The classic: become root of a namespace of one's own, then mount what is outside.
fn unshare_and_mount(g: &Ground) -> Seen {
    let at = g.own("mount");
    with_dir(&at, || {
        sys!(SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        sys!(SYS_mount, c(g.outside("")), c(&at), 0, libc::MS_BIND | libc::MS_REC, 0)?;
        fs::read(at.join("secret"))
    })
}

/// A child that only ends, made with a flag.
fn clone_new(flags: u64) -> Seen {
    match sys!(SYS_clone, flags | libc::SIGCHLD as u64, 0, 0, 0, 0) {
        Ok(0) => leave(),
        Ok(child) => {
            wait(child as i32);
            Seen::Done("a child".to_owned())
        }
        err => tried(err),
    }
}

fn clone3_new(flags: u64) -> Seen {
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    let arguments = [flags, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    match sys!(SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) {
        Ok(0) => leave(),
        Ok(child) => {
            wait(child as i32);
            Seen::Done("a child".to_owned())
        }
        err => tried(err),
    }
}

fn with_dir<T>(at: &std::path::Path, attack: impl FnOnce() -> io::Result<T>) -> Seen {
    match fs::create_dir(at) {
        Ok(()) => tried(attack()),
        Err(error) => Seen::Unclear(format!("mkdir in the grant: {error}")),
    }
}

/// A refusal of the call's arguments shows that nothing stood before it.
fn tried_with_reason<T>(result: io::Result<T>) -> Seen {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBUSY)) => {
            Seen::Done(format!("got as far as {}", crate::sys::short(&error)))
        }
        other => tried(other),
    }
}

/// A child made in the ordinary way: what `clone` must still do.
pub(super) fn children_work(_: &Ground) -> Seen {
    match fork() {
        Ok(None) => leave(),
        Ok(Some(child)) if wait(child) == Some(0) => Seen::Done("a child".to_owned()),
        Ok(Some(_)) => Seen::Held("it died".to_owned()),
        Err(error) => tried::<()>(Err(error)),
    }
}
