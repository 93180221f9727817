//! The kernel: calls with a large attack surface, devices, settings, regaining privileges.

use std::fs;
use std::io;
use std::path::Path;

use crate::probe::{
    DocumentedGap, ProbeOutcome, SandboxProbe, TestedRestriction, UnsandboxedResult, attack_probe,
    outcome_of, outcome_unless,
};
use crate::sys::{error_name, sys, to_c_string};

const KEYRING_PROCESS: i32 = -2;
const PR_CAPBSET_READ: i32 = 23;
const PR_GET_NO_NEW_PRIVS: i32 = 39;
/// Errors about the arguments, which show that no restriction stopped the call. The arguments are wrong on purpose,
/// because valid ones would stop the machine.
const ARGUMENTS: [i32; 5] = [libc::EINVAL, libc::EFAULT, libc::ENOENT, libc::ENOEXEC, libc::EBUSY];

pub(super) const PROBES: &[SandboxProbe] =
    &[
        attack_probe("io-uring", "io_uring_setup", TestedRestriction::SeccompCalls, |_| {
            let mut parameters = [0u32; 30];
            outcome_unless(sys!(SYS_io_uring_setup, 1, parameters.as_mut_ptr()), &[libc::ENOSYS])
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("bpf", "bpf BPF_MAP_CREATE", TestedRestriction::SeccompCalls, |_| {
            // An array with one entry: type, key size, value size, entries.
            let mut attributes = [0u32; 32];
            attributes[..4].copy_from_slice(&[2, 4, 8, 1]);
            outcome_of(sys!(SYS_bpf, 0, attributes.as_ptr(), size_of_val(&attributes)))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("perf", "perf_event_open", TestedRestriction::SeccompCalls, |_| {
            const SOFTWARE: u64 = 1;
            const SIZE: u64 = 112;
            const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 0b110_0000;
            let mut attributes = [0u64; 14];
            (attributes[0], attributes[5]) = (SOFTWARE | (SIZE << 32), EXCLUDE_KERNEL_AND_HYPERVISOR);
            outcome_unless(sys!(SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0), &[libc::ENOSYS])
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("key-add", "add_key", TestedRestriction::SeccompCalls, |_| {
            let (kind, name) = (to_c_string("user"), to_c_string("minke-probe"));
            outcome_unless(sys!(SYS_add_key, kind, name, b"x".as_ptr(), 1, KEYRING_PROCESS), &[libc::ENOSYS])
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("key-request", "request_key", TestedRestriction::SeccompCalls, |_| {
            let (kind, name) = (to_c_string("user"), to_c_string("minke-probe-nothing"));
            // ENOKEY means that the search was made.
            match sys!(SYS_request_key, kind, name, 0, KEYRING_PROCESS) {
                Err(error) if error.raw_os_error() == Some(libc::ENOKEY) => {
                    ProbeOutcome::Succeeded("searched".to_owned())
                }
                other => outcome_unless(other, &[libc::ENOSYS]),
            }
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("keyctl", "keyctl KEYCTL_GET_KEYRING_ID", TestedRestriction::SeccompCalls, |_| {
            outcome_unless(sys!(SYS_keyctl, 0, KEYRING_PROCESS, 1), &[libc::ENOSYS])
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("userfaultfd", "userfaultfd", TestedRestriction::SeccompCalls, |_| {
            const USER_MODE_ONLY: i32 = 1;
            outcome_unless(sys!(SYS_userfaultfd, USER_MODE_ONLY), &[libc::ENOSYS])
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("fanotify", "fanotify_init", TestedRestriction::SeccompCalls, |_| {
            outcome_unless(sys!(SYS_fanotify_init, 0, libc::O_RDONLY), &[libc::ENOSYS])
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("kexec", "kexec_load", TestedRestriction::SeccompCalls, |_| {
            read_arguments(sys!(SYS_kexec_load, 0, 0, 0, u64::MAX))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("module-load", "init_module", TestedRestriction::SeccompCalls, |_| {
            read_arguments(sys!(SYS_init_module, 0, 0, to_c_string("")))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("module-unload", "delete_module", TestedRestriction::SeccompCalls, |_| {
            read_arguments(sys!(SYS_delete_module, to_c_string("minke-probe-nothing"), libc::O_NONBLOCK))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("swapon", "swapon", TestedRestriction::SeccompCalls, |g| {
            read_arguments(sys!(SYS_swapon, to_c_string(g.path_in_work("nothing")), 0))
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("reboot", "reboot", TestedRestriction::SeccompCalls, |_| {
            read_arguments(sys!(SYS_reboot, 0, 0, 0, 0))
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("set-clock", "clock_settime", TestedRestriction::SeccompCalls, |_| {
            let impossible = [0i64, i64::MAX];
            match sys!(SYS_settimeofday, impossible.as_ptr(), 0) {
                // The kernel checks the arguments first.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => clock_settime(),
                other => outcome_of(other),
            }
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("kernel-log", "syslog", TestedRestriction::SeccompCalls, |_| {
            const READ_ALL: i32 = 3;
            let mut buffer = [0u8; 256];
            outcome_of(sys!(SYS_syslog, READ_ALL, buffer.as_mut_ptr(), buffer.len()))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("set-host-name", "sethostname", TestedRestriction::Capabilities, |_| {
            let name = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
            let name = name.trim_ascii_end();
            outcome_of(sys!(SYS_sethostname, name.as_ptr(), name.len()))
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("io-ports", "iopl", TestedRestriction::SeccompCalls, |_| ports())
            .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("device-node", "mknodat S_IFCHR", TestedRestriction::Capabilities, |g| {
            // The null device; another device number would work as well.
            let null = 0x103;
            outcome_of(sys!(
                SYS_mknodat,
                libc::AT_FDCWD,
                to_c_string(g.own_path("node")),
                libc::S_IFCHR | 0o600,
                null
            ))
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("device-chmod", "fchmodat /dev/null", TestedRestriction::ReadOnlyRoot, |_| {
            // Sets the current mode; 000 would work as well and would stop the machine.
            outcome_of(sys!(SYS_fchmodat, libc::AT_FDCWD, to_c_string("/dev/null"), 0o666))
        })
        .unsandboxed(UnsandboxedResult::AsRoot)
        .left_by_landlock(DocumentedGap::Metadata),
        attack_probe("input-chmod", "fchmod", TestedRestriction::ReadOnlyRoot, |_| {
            outcome_of(sys!(SYS_fchmod, 0, 0o666))
        })
        .unsandboxed(UnsandboxedResult::AsRoot)
        .left_by_landlock(DocumentedGap::Metadata),
        attack_probe("device-memory", "openat /dev/mem", TestedRestriction::LandlockFiles, |_| {
            open_file("/dev/mem", libc::O_RDONLY)
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("device-log", "openat /dev/kmsg", TestedRestriction::LandlockFiles, |_| {
            open_file("/dev/kmsg", libc::O_RDONLY | libc::O_NONBLOCK)
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("device-disk", "openat /dev/vda …", TestedRestriction::LandlockFiles, |_| {
            let disks = ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/xvda", "/dev/loop0"];
            disks
                .into_iter()
                .map(|disk| open_file(disk, libc::O_RDONLY))
                .find(|seen| !matches!(seen, ProbeOutcome::Absent(_)))
                .unwrap_or_else(|| ProbeOutcome::Absent("no disk".to_owned()))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("device-fuse", "openat /dev/fuse", TestedRestriction::LandlockFiles, |_| {
            open_file("/dev/fuse", libc::O_RDWR)
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("device-kvm", "openat /dev/kvm", TestedRestriction::LandlockFiles, |_| {
            open_file("/dev/kvm", libc::O_RDWR)
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("sysctl", "openat /proc/sys O_WRONLY", TestedRestriction::LandlockFiles, |_| {
            open_file("/proc/sys/kernel/panic", libc::O_WRONLY)
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe(
            "core-pattern",
            "openat /proc/sys/kernel/core_pattern",
            TestedRestriction::LandlockFiles,
            |_| open_file("/proc/sys/kernel/core_pattern", libc::O_WRONLY),
        )
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("sysrq", "openat /proc/sysrq-trigger", TestedRestriction::LandlockFiles, |_| {
            open_file("/proc/sysrq-trigger", libc::O_WRONLY)
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("sysfs", "openat /sys O_WRONLY", TestedRestriction::LandlockFiles, |_| {
            let settings =
                ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/profiling", "/sys/power/state"];
            settings
                .into_iter()
                .map(|file| open_file(file, libc::O_WRONLY))
                .find(|seen| !matches!(seen, ProbeOutcome::Absent(_)))
                .unwrap_or_else(|| ProbeOutcome::Absent("no such setting".to_owned()))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("cgroup", "openat cgroup.procs O_WRONLY", TestedRestriction::LandlockFiles, |_| {
            let files = [
                "/sys/fs/cgroup/cgroup.procs",
                "/sys/fs/cgroup/pids/cgroup.procs",
                "/sys/fs/cgroup/cpu/cgroup.procs",
            ];
            files
                .into_iter()
                .map(|file| open_file(file, libc::O_WRONLY))
                .find(|seen| !matches!(seen, ProbeOutcome::Absent(_)))
                .unwrap_or_else(|| ProbeOutcome::Absent("no cgroups".to_owned()))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("cgroup-mkdir", "mkdir in a cgroup", TestedRestriction::LandlockFiles, |_| {
            let at = Path::new("/sys/fs/cgroup/minke-probe");
            outcome_unless(fs::create_dir(at).and_then(|()| fs::remove_dir(at)), &[libc::ENOENT])
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("set-uid", "setresuid", TestedRestriction::Capabilities, |_| {
            outcome_of(sys!(SYS_setresuid, 12345, 12345, 12345))
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("set-groups", "setgroups", TestedRestriction::Capabilities, |_| {
            outcome_of(sys!(SYS_setgroups, 0, 0))
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("chown-in-scope", "fchownat", TestedRestriction::Capabilities, |g| {
            outcome_of(fs::write(g.own_path("file"), "").and_then(|()| {
                sys!(SYS_fchownat, libc::AT_FDCWD, to_c_string(g.own_path("file")), 12345, 12345, 0)
            }))
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("capabilities-held", "capget", TestedRestriction::Capabilities, |_| {
            match read_capabilities() {
                Ok(0) => ProbeOutcome::Stopped("none".to_owned()),
                Ok(held) => ProbeOutcome::Succeeded(format!("{held:#x}")),
                err => outcome_of(err),
            }
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe("capabilities-raised", "capset", TestedRestriction::Capabilities, |_| {
            let header = [0x2008_0522u32, 0];
            let all = [u32::MAX, u32::MAX, 0, 0x1ff, 0x1ff, 0];
            outcome_of(sys!(SYS_capset, header.as_ptr(), all.as_ptr()))
        })
        .unsandboxed(UnsandboxedResult::IfOffered),
        attack_probe("capabilities-bound", "prctl PR_CAPBSET_READ", TestedRestriction::Capabilities, |_| {
            let held = (0..=40).filter(|cap| matches!(sys!(SYS_prctl, PR_CAPBSET_READ, *cap), Ok(1))).count();
            match held {
                0 => ProbeOutcome::Stopped("none".to_owned()),
                // No other user can use it or gain anything from it.
                _ if !rustix::process::getuid().is_root() => ProbeOutcome::Stopped("not root's".to_owned()),
                held => ProbeOutcome::Succeeded(format!("{held} in the bounding set")),
            }
        })
        .unsandboxed(UnsandboxedResult::AsRoot),
        attack_probe(
            "new-privileges",
            "prctl PR_GET_NO_NEW_PRIVS",
            TestedRestriction::NoNewPrivileges,
            |_| match sys!(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) {
                Ok(0) => ProbeOutcome::Succeeded("an exec may raise privileges".to_owned()),
                Ok(_) => ProbeOutcome::Stopped("set".to_owned()),
                err => outcome_of(err),
            },
        ),
        attack_probe("host-name", "uname", TestedRestriction::UtsNamespace, |g| {
            let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            if name.trim() == g.fact_text("host_name") {
                ProbeOutcome::Succeeded(name)
            } else {
                ProbeOutcome::Stopped("another name".to_owned())
            }
        })
        .left_by_landlock(DocumentedGap::Looks),
        attack_probe("machine-tmp-stat", "newfstatat /tmp", TestedRestriction::Tmp, |g| {
            outcome_of(fs::symlink_metadata(g.fact_text("host_tmp_file")))
        })
        .left_by_landlock(DocumentedGap::Looks),
        attack_probe("masked-stat", "newfstatat", TestedRestriction::Masks, |g| {
            outcome_of(fs::symlink_metadata(g.path_to("home/.ssh/id_ed25519")))
        })
        .left_by_landlock(DocumentedGap::Looks),
        attack_probe("device-stat", "newfstatat /dev", TestedRestriction::Devices, |_| {
            let devices = ["/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/fuse"];
            match devices.into_iter().find(|device| Path::new(device).exists()) {
                Some(device) => ProbeOutcome::Succeeded(device.to_owned()),
                None => ProbeOutcome::Stopped("none of them".to_owned()),
            }
        })
        .left_by_landlock(DocumentedGap::Looks)
        .unsandboxed(UnsandboxedResult::IfOffered),
    ];

fn open_file(path: &str, flags: i32) -> ProbeOutcome {
    outcome_unless(
        sys!(SYS_openat, libc::AT_FDCWD, to_c_string(path), flags),
        &[libc::ENOENT, libc::ENODEV, libc::ENXIO],
    )
}

fn read_arguments<T>(result: io::Result<T>) -> ProbeOutcome {
    match result {
        Err(error) if error.raw_os_error().is_some_and(|code| ARGUMENTS.contains(&code)) => {
            ProbeOutcome::Succeeded(format!("got as far as {}", error_name(&error)))
        }
        other => outcome_unless(other, &[libc::ENOSYS]),
    }
}

/// Sets the clock to its current time. An ordinary user is refused for any time.
fn clock_settime() -> ProbeOutcome {
    let mut now = [0i64; 2];
    outcome_of(
        sys!(SYS_clock_gettime, libc::CLOCK_REALTIME, now.as_mut_ptr())
            .and_then(|_| sys!(SYS_clock_settime, libc::CLOCK_REALTIME, now.as_ptr())),
    )
}

#[cfg(target_arch = "x86_64")]
fn ports() -> ProbeOutcome {
    outcome_unless(sys!(SYS_iopl, 3), &[libc::ENOSYS])
}

#[cfg(not(target_arch = "x86_64"))]
fn ports() -> ProbeOutcome {
    ProbeOutcome::Absent("no such call".to_owned())
}

/// Returns the effective and permitted sets.
fn read_capabilities() -> io::Result<u64> {
    let header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    sys!(SYS_capget, header.as_ptr(), sets.as_mut_ptr())?;
    Ok(u64::from(sets[0] | sets[1]) | (u64::from(sets[3] | sets[4]) << 32))
}
