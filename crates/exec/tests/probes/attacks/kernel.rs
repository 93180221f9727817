//! The kernel itself: calls with a large surface, devices, settings, privileges to be had back.

use std::fs;
use std::io;
use std::path::Path;

use crate::probe::{Bare, Probe, Rest, Seen, Wall, probe, tried, tried_if};
use crate::sys::{c, short, sys};

const KEYRING_PROCESS: i32 = -2;
const PR_CAPBSET_READ: i32 = 23;
const PR_GET_NO_NEW_PRIVS: i32 = 39;
/// Errors by which the kernel speaks of the arguments: nothing stood before them. They are wrong on purpose, since the
/// right ones would stop the machine.
const OF_THE_ARGUMENTS: [i32; 5] = [libc::EINVAL, libc::EFAULT, libc::ENOENT, libc::ENOEXEC, libc::EBUSY];

pub(super) const PROBES: &[Probe] = &[
    probe("io-uring", "io_uring_setup", Wall::SeccompCalls, |_| {
        let mut parameters = [0u32; 30];
        tried_if(sys!(SYS_io_uring_setup, 1, parameters.as_mut_ptr()), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
    probe("bpf", "bpf BPF_MAP_CREATE", Wall::SeccompCalls, |_| {
        // An array of one entry: type, key size, value size, entries.
        let mut attributes = [0u32; 32];
        attributes[..4].copy_from_slice(&[2, 4, 8, 1]);
        tried(sys!(SYS_bpf, 0, attributes.as_ptr(), size_of_val(&attributes)))
    })
    .bare(Bare::IfOffered),
    probe("perf", "perf_event_open", Wall::SeccompCalls, |_| {
        const SOFTWARE: u64 = 1;
        const SIZE: u64 = 112;
        const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 0b110_0000;
        let mut attributes = [0u64; 14];
        (attributes[0], attributes[5]) = (SOFTWARE | (SIZE << 32), EXCLUDE_KERNEL_AND_HYPERVISOR);
        tried_if(sys!(SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
    probe("key-add", "add_key", Wall::SeccompCalls, |_| {
        let (kind, name) = (c("user"), c("minke-probe"));
        tried_if(sys!(SYS_add_key, kind, name, b"x".as_ptr(), 1, KEYRING_PROCESS), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
    probe("key-request", "request_key", Wall::SeccompCalls, |_| {
        let (kind, name) = (c("user"), c("minke-probe-nothing"));
        // ENOKEY is an answer: the search was made.
        match sys!(SYS_request_key, kind, name, 0, KEYRING_PROCESS) {
            Err(error) if error.raw_os_error() == Some(libc::ENOKEY) => Seen::Done("searched".to_owned()),
            other => tried_if(other, &[libc::ENOSYS]),
        }
    })
    .bare(Bare::IfOffered),
    probe("keyctl", "keyctl KEYCTL_GET_KEYRING_ID", Wall::SeccompCalls, |_| {
        tried_if(sys!(SYS_keyctl, 0, KEYRING_PROCESS, 1), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
    probe("userfaultfd", "userfaultfd", Wall::SeccompCalls, |_| {
        const USER_MODE_ONLY: i32 = 1;
        tried_if(sys!(SYS_userfaultfd, USER_MODE_ONLY), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
    probe("fanotify", "fanotify_init", Wall::SeccompCalls, |_| {
        tried_if(sys!(SYS_fanotify_init, 0, libc::O_RDONLY), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
    probe("kexec", "kexec_load", Wall::SeccompCalls, |_| arguments(sys!(SYS_kexec_load, 0, 0, 0, u64::MAX)))
        .bare(Bare::IfOffered),
    probe("module-load", "init_module", Wall::SeccompCalls, |_| {
        arguments(sys!(SYS_init_module, 0, 0, c("")))
    })
    .bare(Bare::IfOffered),
    probe("module-unload", "delete_module", Wall::SeccompCalls, |_| {
        arguments(sys!(SYS_delete_module, c("minke-probe-nothing"), libc::O_NONBLOCK))
    })
    .bare(Bare::IfOffered),
    probe("swapon", "swapon", Wall::SeccompCalls, |g| arguments(sys!(SYS_swapon, c(g.work("nothing")), 0)))
        .bare(Bare::AsRoot),
    probe("reboot", "reboot", Wall::SeccompCalls, |_| arguments(sys!(SYS_reboot, 0, 0, 0, 0)))
        .bare(Bare::AsRoot),
    probe("set-clock", "clock_settime", Wall::SeccompCalls, |_| {
        let impossible = [0i64, i64::MAX];
        match sys!(SYS_settimeofday, impossible.as_ptr(), 0) {
            // The arguments are looked at first, by everybody's leave.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => clock_settime(),
            other => tried(other),
        }
    })
    .bare(Bare::AsRoot),
    probe("kernel-log", "syslog", Wall::SeccompCalls, |_| {
        const READ_ALL: i32 = 3;
        let mut buffer = [0u8; 256];
        tried(sys!(SYS_syslog, READ_ALL, buffer.as_mut_ptr(), buffer.len()))
    })
    .bare(Bare::IfOffered),
    probe("set-host-name", "sethostname", Wall::Capabilities, |_| {
        let name = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim_ascii_end();
        tried(sys!(SYS_sethostname, name.as_ptr(), name.len()))
    })
    .bare(Bare::AsRoot),
    probe("io-ports", "iopl", Wall::SeccompCalls, |_| ports()).bare(Bare::IfOffered),
    probe("device-node", "mknodat S_IFCHR", Wall::Capabilities, |g| {
        // The null device: another number would be as easy.
        let null = 0x103;
        tried(sys!(SYS_mknodat, libc::AT_FDCWD, c(g.own("node")), libc::S_IFCHR | 0o600, null))
    })
    .bare(Bare::AsRoot),
    probe("device-chmod", "fchmodat /dev/null", Wall::ReadOnlyRoot, |_| {
        // To what it is already; 000 would be as easy, and would stop the machine.
        tried(sys!(SYS_fchmodat, libc::AT_FDCWD, c("/dev/null"), 0o666))
    })
    .bare(Bare::AsRoot)
    .left_by_b(Rest::Metadata),
    probe("input-chmod", "fchmod", Wall::ReadOnlyRoot, |_| tried(sys!(SYS_fchmod, 0, 0o666)))
        .bare(Bare::AsRoot)
        .left_by_b(Rest::Metadata),
    probe("device-memory", "openat /dev/mem", Wall::LandlockFiles, |_| open("/dev/mem", libc::O_RDONLY))
        .bare(Bare::IfOffered),
    probe("device-log", "openat /dev/kmsg", Wall::LandlockFiles, |_| {
        open("/dev/kmsg", libc::O_RDONLY | libc::O_NONBLOCK)
    })
    .bare(Bare::IfOffered),
    probe("device-disk", "openat /dev/vda …", Wall::LandlockFiles, |_| {
        let disks = ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/xvda", "/dev/loop0"];
        disks
            .into_iter()
            .map(|disk| open(disk, libc::O_RDONLY))
            .find(|seen| !matches!(seen, Seen::Absent(_)))
            .unwrap_or_else(|| Seen::Absent("no disk".to_owned()))
    })
    .bare(Bare::IfOffered),
    probe("device-fuse", "openat /dev/fuse", Wall::LandlockFiles, |_| open("/dev/fuse", libc::O_RDWR))
        .bare(Bare::IfOffered),
    probe("device-kvm", "openat /dev/kvm", Wall::LandlockFiles, |_| open("/dev/kvm", libc::O_RDWR))
        .bare(Bare::IfOffered),
    probe("sysctl", "openat /proc/sys O_WRONLY", Wall::LandlockFiles, |_| {
        open("/proc/sys/kernel/panic", libc::O_WRONLY)
    })
    .bare(Bare::AsRoot),
    probe("core-pattern", "openat /proc/sys/kernel/core_pattern", Wall::LandlockFiles, |_| {
        open("/proc/sys/kernel/core_pattern", libc::O_WRONLY)
    })
    .bare(Bare::AsRoot),
    probe("sysrq", "openat /proc/sysrq-trigger", Wall::LandlockFiles, |_| {
        open("/proc/sysrq-trigger", libc::O_WRONLY)
    })
    .bare(Bare::IfOffered),
    probe("sysfs", "openat /sys O_WRONLY", Wall::LandlockFiles, |_| {
        let settings =
            ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/profiling", "/sys/power/state"];
        settings
            .into_iter()
            .map(|file| open(file, libc::O_WRONLY))
            .find(|seen| !matches!(seen, Seen::Absent(_)))
            .unwrap_or_else(|| Seen::Absent("no such setting".to_owned()))
    })
    .bare(Bare::IfOffered),
    probe("cgroup", "openat cgroup.procs O_WRONLY", Wall::LandlockFiles, |_| {
        let files = [
            "/sys/fs/cgroup/cgroup.procs",
            "/sys/fs/cgroup/pids/cgroup.procs",
            "/sys/fs/cgroup/cpu/cgroup.procs",
        ];
        files
            .into_iter()
            .map(|file| open(file, libc::O_WRONLY))
            .find(|seen| !matches!(seen, Seen::Absent(_)))
            .unwrap_or_else(|| Seen::Absent("no cgroups".to_owned()))
    })
    .bare(Bare::IfOffered),
    probe("cgroup-mkdir", "mkdir in a cgroup", Wall::LandlockFiles, |_| {
        let at = Path::new("/sys/fs/cgroup/minke-probe");
        tried_if(fs::create_dir(at).and_then(|()| fs::remove_dir(at)), &[libc::ENOENT])
    })
    .bare(Bare::IfOffered),
    probe("set-uid", "setresuid", Wall::Capabilities, |_| tried(sys!(SYS_setresuid, 12345, 12345, 12345)))
        .bare(Bare::AsRoot),
    probe("set-groups", "setgroups", Wall::Capabilities, |_| tried(sys!(SYS_setgroups, 0, 0)))
        .bare(Bare::AsRoot),
    probe("chown-in-scope", "fchownat", Wall::Capabilities, |g| {
        tried(
            fs::write(g.own("file"), "")
                .and_then(|()| sys!(SYS_fchownat, libc::AT_FDCWD, c(g.own("file")), 12345, 12345, 0)),
        )
    })
    .bare(Bare::AsRoot),
    probe("capabilities-held", "capget", Wall::Capabilities, |_| match capabilities() {
        Ok(0) => Seen::Held("none".to_owned()),
        Ok(held) => Seen::Done(format!("{held:#x}")),
        err => tried(err),
    })
    .bare(Bare::AsRoot),
    probe("capabilities-raised", "capset", Wall::Capabilities, |_| {
        let header = [0x2008_0522u32, 0];
        let all = [u32::MAX, u32::MAX, 0, 0x1ff, 0x1ff, 0];
        tried(sys!(SYS_capset, header.as_ptr(), all.as_ptr()))
    })
    .bare(Bare::IfOffered),
    probe("capabilities-bound", "prctl PR_CAPBSET_READ", Wall::Capabilities, |_| {
        let held = (0..=40).filter(|cap| matches!(sys!(SYS_prctl, PR_CAPBSET_READ, *cap), Ok(1))).count();
        match held {
            0 => Seen::Held("none".to_owned()),
            // Nobody else can make use of it, or take anything out of it.
            _ if !rustix::process::getuid().is_root() => Seen::Held("not root's".to_owned()),
            held => Seen::Done(format!("{held} in the bounding set")),
        }
    })
    .bare(Bare::AsRoot),
    probe("new-privileges", "prctl PR_GET_NO_NEW_PRIVS", Wall::NoNewPrivileges, |_| {
        match sys!(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) {
            Ok(0) => Seen::Done("an exec may raise privileges".to_owned()),
            Ok(_) => Seen::Held("set".to_owned()),
            err => tried(err),
        }
    }),
    probe("host-name", "uname", Wall::UtsNamespace, |g| {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim() == g.fact("host_name") {
            Seen::Done(name)
        } else {
            Seen::Held("another name".to_owned())
        }
    })
    .left_by_b(Rest::Looks),
    probe("machine-tmp-stat", "newfstatat /tmp", Wall::Tmp, |g| {
        tried(fs::symlink_metadata(g.fact("host_tmp_file")))
    })
    .left_by_b(Rest::Looks),
    probe("masked-stat", "newfstatat", Wall::Masks, |g| {
        tried(fs::symlink_metadata(g.at("home/.ssh/id_ed25519")))
    })
    .left_by_b(Rest::Looks),
    probe("device-stat", "newfstatat /dev", Wall::Devices, |_| {
        let devices = ["/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/fuse"];
        match devices.into_iter().find(|device| Path::new(device).exists()) {
            Some(device) => Seen::Done(device.to_owned()),
            None => Seen::Held("none of them".to_owned()),
        }
    })
    .left_by_b(Rest::Looks)
    .bare(Bare::IfOffered),
];

fn open(path: &str, flags: i32) -> Seen {
    tried_if(sys!(SYS_openat, libc::AT_FDCWD, c(path), flags), &[libc::ENOENT, libc::ENODEV, libc::ENXIO])
}

fn arguments<T>(result: io::Result<T>) -> Seen {
    match result {
        Err(error) if error.raw_os_error().is_some_and(|code| OF_THE_ARGUMENTS.contains(&code)) => {
            Seen::Done(format!("got as far as {}", short(&error)))
        }
        other => tried_if(other, &[libc::ENOSYS]),
    }
}

/// Sets the clock to what it says. An ordinary user is refused whatever the time.
fn clock_settime() -> Seen {
    let mut now = [0i64; 2];
    tried(
        sys!(SYS_clock_gettime, libc::CLOCK_REALTIME, now.as_mut_ptr())
            .and_then(|_| sys!(SYS_clock_settime, libc::CLOCK_REALTIME, now.as_ptr())),
    )
}

#[cfg(target_arch = "x86_64")]
fn ports() -> Seen {
    tried_if(sys!(SYS_iopl, 3), &[libc::ENOSYS])
}

#[cfg(not(target_arch = "x86_64"))]
fn ports() -> Seen {
    Seen::Absent("no such call".to_owned())
}

/// The effective and permitted sets, as one word.
fn capabilities() -> io::Result<u64> {
    let header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    sys!(SYS_capget, header.as_ptr(), sets.as_mut_ptr())?;
    Ok(u64::from(sets[0] | sets[1]) | (u64::from(sets[3] | sets[4]) << 32))
}
