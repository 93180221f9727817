//! Seccomp: refuses system calls that no command needs and that bypass other restrictions.
//!
//! Here: the list, and the BPF program that the kernel runs on each call. A call of a foreign architecture kills the
//! process, because its numbers have other meanings (`the_program_decides_as_the_list_says`). A call that would create
//! a set-ID file is reported to the supervising process, which refuses it (`refusals`).

#![expect(unsafe_code, reason = "installing a filter passes a pointer to the kernel")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long,
    sock_filter,
};

use super::super::restrictions::Restrictions;

/// The options of a filter.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct SeccompFilter {
    /// Sockets may be opened, because the sandbox's network namespace contains only a loopback address.
    pub(in crate::sandbox) loopback: bool,
    /// No namespaces hide other processes and shared objects, so calls that reach them are refused too.
    pub(in crate::sandbox) without_namespaces: bool,
    pub(in crate::sandbox) restrictions: Restrictions,
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

const fn return_errno(number: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | (number as u32 & libc::SECCOMP_RET_DATA)
}
const NOT_PERMITTED: u32 = return_errno(libc::EPERM);
const NOT_IMPLEMENTED: u32 = return_errno(libc::ENOSYS);
/// Reports the call to the supervisor, which refuses it. Without a listener, the kernel refuses the call.
const REPORTED: u32 = libc::SECCOMP_RET_USER_NOTIF;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
/// Numbers from here on belong to the x32 ABI, which has the same architecture number.
const X32: u32 = 0x4000_0000;

/// Offsets of the call number, the architecture and the low half of each argument.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const fn argument_at(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

/// Returns the calls that are refused whatever their arguments.
fn refused_calls() -> Vec<c_long> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "more calls exist on x86_64"))]
    let mut calls = vec![
        // Other processes: their memory, their descriptors, their registers.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        // Ways around a filter, or into kernel internals.
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_perf_event_open,
        libc::SYS_fanotify_init,
        // Keyrings.
        libc::SYS_add_key,
        libc::SYS_keyctl,
        libc::SYS_request_key,
        // Mounts, roots and namespaces.
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        OPEN_TREE_ATTR,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_open_by_handle_at,
        // The host itself.
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_quotactl_fd,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_syslog,
        libc::SYS_vhangup,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt]);
    calls.push(libc::SYS_kexec_file_load);
    calls
}

/// Newer than the list in libc.
const OPEN_TREE_ATTR: c_long = 467;
const FCHMODAT2: c_long = 452;

/// Mode bits that let a program run with the rights of its file's owner or group.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
/// Flags of `open` for which the mode is used. `O_TMPFILE` consists of two bits, one of which is `O_DIRECTORY`.
const CREATE_FLAGS: u32 = libc::O_CREAT as u32 | (libc::O_TMPFILE as u32 & !(libc::O_DIRECTORY as u32));

/// Calls with a mode, and the index of that argument.
const MODE_CALLS: &[(c_long, u32)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
];
/// Calls whose flags say whether they use a mode, which is the argument after the flags.
const FLAG_CALLS: &[(c_long, u32)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// Terminal requests that insert input into another terminal or control the console.
const TERMINAL_REQUESTS: [u32; 2] = [0x5412, 0x541C];

/// Flags of `clone` that create namespaces.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32
    | CLONE_NEW_TIME;
const CLONE_NEW_TIME: u32 = 0x80;

/// The bits of a socket's type; higher bits are flags.
const SOCKET_TYPE_MASK: u32 = 0xF;

/// A BPF program without loops: each block tests one call and either returns or continues with the next block.
struct BpfProgram(Vec<sock_filter>);

impl BpfProgram {
    fn push_instruction(&mut self, code: u32, yes: u8, no: u8, k: u32) {
        // The codes of the instruction set fit in their field.
        self.0.push(sock_filter { code: code as u16, jt: yes, jf: no, k });
    }

    fn load_word(&mut self, at: u32) {
        self.push_instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, at);
    }

    fn push_return(&mut self, with: u32) {
        self.push_instruction(BPF_RET | BPF_K, 0, 0, with);
    }

    /// Returns an action for one call, whatever its arguments.
    fn match_call(&mut self, number: c_long, with: u32) {
        self.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number as u32);
        self.push_return(with);
    }

    /// Adds a block for one call; `inside` must end with a return.
    fn call_block(&mut self, number: c_long, inside: impl FnOnce(&mut BpfProgram)) {
        let mut block = BpfProgram(Vec::new());
        inside(&mut block);
        let length = u8::try_from(block.0.len()).unwrap_or(u8::MAX);
        debug_assert!(usize::from(length) == block.0.len(), "a block is too long for its jump");
        self.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, length, number as u32);
        self.0.append(&mut block.0);
    }
}

/// Builds the program for this machine's architecture. `set_id_answer` is the action for calls that create set-ID
/// files.
fn build_program(filter_spec: SeccompFilter, set_id_answer: u32) -> Vec<sock_filter> {
    let mut program = BpfProgram(Vec::with_capacity(224));
    program.load_word(ARCHITECTURE_AT);
    program.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCHITECTURE);
    program.push_return(KILL);
    program.load_word(NUMBER_AT);
    if cfg!(target_arch = "x86_64") {
        program.push_instruction(BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32);
        program.push_return(KILL);
    }
    if filter_spec.restrictions.contains(Restrictions::SECCOMP_SET_ID) {
        // These come first, because commands open files often and the kernel runs the program on every call.
        add_set_id_rules(&mut program, set_id_answer);
    }
    if filter_spec.restrictions.contains(Restrictions::SECCOMP_CALLS) {
        add_call_rules(&mut program);
        if filter_spec.without_namespaces {
            add_process_rules(&mut program);
        }
    }
    if filter_spec.restrictions.contains(Restrictions::SECCOMP_SOCKETS) {
        add_socket_rules(&mut program, filter_spec.loopback);
    }
    program.push_return(ALLOW);
    program.0
}

/// Adds the calls with a set-ID bit in their mode.
fn add_set_id_rules(program: &mut BpfProgram, answer: u32) {
    for (number, flags) in FLAG_CALLS {
        program.call_block(*number, |block| {
            block.load_word(argument_at(*flags));
            block.push_instruction(BPF_JMP | BPF_JSET | BPF_K, 0, 2, CREATE_FLAGS);
            block.load_word(argument_at(flags + 1));
            block.push_instruction(BPF_JMP | BPF_JSET | BPF_K, 1, 0, SET_ID);
            block.push_return(ALLOW);
            block.push_return(answer);
        });
    }
    for (number, mode) in MODE_CALLS {
        program.call_block(*number, |block| {
            block.load_word(argument_at(*mode));
            block.push_instruction(BPF_JMP | BPF_JSET | BPF_K, 0, 1, SET_ID);
            block.push_return(answer);
            block.push_return(ALLOW);
        });
    }
    // Its mode is in memory, which a filter cannot read. Programs fall back to `openat`.
    program.match_call(libc::SYS_openat2, NOT_IMPLEMENTED);
}

fn add_call_rules(program: &mut BpfProgram) {
    for number in refused_calls() {
        program.match_call(number, NOT_PERMITTED);
    }
    // The flags of `clone3` are in memory, which a filter cannot read. libc falls back to `clone`.
    program.match_call(libc::SYS_clone3, NOT_IMPLEMENTED);
    program.call_block(libc::SYS_clone, |block| {
        block.load_word(argument_at(0));
        block.push_instruction(BPF_JMP | BPF_JSET | BPF_K, 0, 1, NEW_NAMESPACES);
        block.push_return(NOT_PERMITTED);
        block.push_return(ALLOW);
    });
    program.call_block(libc::SYS_ioctl, |block| {
        // The kernel uses the low half only.
        block.load_word(argument_at(1));
        for request in TERMINAL_REQUESTS {
            block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, request);
            block.push_return(NOT_PERMITTED);
        }
        block.push_return(ALLOW);
    });
}

/// Shared memory, queues and semaphores, which are global without an IPC namespace.
const SHARED_IPC_CALLS: [c_long; 5] =
    [libc::SYS_shmget, libc::SYS_shmat, libc::SYS_msgget, libc::SYS_semget, libc::SYS_mq_open];
/// Calls that change scheduling or limits of a process, and the index of the target argument. Only the caller itself,
/// 0, is allowed: a limit or a priority is enough to stop a pod.
const TARGET_CALLS: [(c_long, u32); 7] = [
    (libc::SYS_prlimit64, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
];
/// Calls on queues and semaphores whose number could be guessed.
const IPC_NUMBER_CALLS: [c_long; 8] = [
    libc::SYS_shmctl,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_semctl,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_mq_unlink,
];

/// Adds calls on other processes and shared objects, for sandboxes without namespaces.
fn add_process_rules(program: &mut BpfProgram) {
    for number in SHARED_IPC_CALLS.into_iter().chain(IPC_NUMBER_CALLS) {
        program.match_call(number, NOT_PERMITTED);
    }
    for (number, whose) in TARGET_CALLS {
        program.call_block(number, |block| {
            block.load_word(argument_at(whose));
            block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
            block.push_return(ALLOW);
            block.push_return(NOT_PERMITTED);
        });
    }
}

/// Allows socket pairs only, and none whose messages could be sent elsewhere; with a proxy also TCP.
fn add_socket_rules(program: &mut BpfProgram, loopback: bool) {
    program.call_block(libc::SYS_socket, |block| {
        if loopback {
            block.load_word(argument_at(0));
            block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, libc::AF_INET as u32);
            block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, libc::AF_INET6 as u32);
            block.push_return(NOT_PERMITTED);
            block.load_word(argument_at(1));
            block.push_instruction(BPF_ALU | BPF_AND | BPF_K, 0, 0, SOCKET_TYPE_MASK);
            block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, libc::SOCK_STREAM as u32);
            block.push_return(NOT_PERMITTED);
            block.load_word(argument_at(2));
            block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0);
            block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, libc::IPPROTO_TCP as u32);
            block.push_return(ALLOW);
        }
        block.push_return(NOT_PERMITTED);
    });
    program.call_block(libc::SYS_socketpair, |block| {
        block.load_word(argument_at(0));
        block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, libc::AF_UNIX as u32);
        block.push_return(NOT_PERMITTED);
        block.load_word(argument_at(1));
        block.push_instruction(BPF_ALU | BPF_AND | BPF_K, 0, 0, SOCKET_TYPE_MASK);
        // A datagram socket of a pair can still be connected to, or send to, any other address.
        block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, libc::SOCK_STREAM as u32);
        block.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, libc::SOCK_SEQPACKET as u32);
        block.push_return(ALLOW);
        block.push_return(NOT_PERMITTED);
    });
    if !loopback {
        for number in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4] {
            program.match_call(number, NOT_PERMITTED);
        }
        program.match_call(libc::SYS_accept, NOT_PERMITTED);
    }
}

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
const NEW_LISTENER: u32 = 1 << 3;

/// Installs the filter for this process and its descendants. Requires `no_new_privs`. Returns the listener for refused
/// set-ID files. A process can have only one listener: inside a container that has one, or inside another sandbox,
/// there is none, and the kernel refuses the calls without a report.
pub(in crate::sandbox) fn install_filter(filter_spec: SeccompFilter) -> io::Result<Option<OwnedFd>> {
    if !filter_spec.restrictions.contains(Restrictions::SECCOMP_SET_ID) {
        return load_filter(&mut build_program(filter_spec, NOT_PERMITTED), 0).map(|_| None);
    }
    match load_filter(&mut build_program(filter_spec, REPORTED), NEW_LISTENER) {
        // SAFETY: the descriptor is new and has no other owner.
        Ok(listener) => Ok(Some(unsafe { OwnedFd::from_raw_fd(listener) })),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            load_filter(&mut build_program(filter_spec, NOT_PERMITTED), 0).map(|_| None)
        }
        Err(error) => Err(error),
    }
}

/// Returns 0, or the descriptor of the listener that the flags request.
fn load_filter(filter: &mut [sock_filter], flags: u32) -> io::Result<i32> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program points to `filter`, which outlives the call; the kernel copies it.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match i32::try_from(done) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program like the kernel.
    fn run_program(program: &[sock_filter], number: c_long, arguments: [u64; 6], architecture: u32) -> u32 {
        let mut data = Vec::new();
        data.extend_from_slice(&(number as u32).to_ne_bytes());
        data.extend_from_slice(&architecture.to_ne_bytes());
        data.extend_from_slice(&0_u64.to_ne_bytes());
        for argument in arguments {
            data.extend_from_slice(&argument.to_ne_bytes());
        }
        let (mut at, mut value) = (0, 0_u32);
        loop {
            let one = program[at];
            at += 1;
            let code = u32::from(one.code);
            let jump = |yes: bool| usize::from(if yes { one.jt } else { one.jf });
            if code == BPF_LD | BPF_W | BPF_ABS {
                let from = one.k as usize;
                value = u32::from_ne_bytes(data[from..from + 4].try_into().unwrap());
            } else if code == BPF_RET | BPF_K {
                return one.k;
            } else if code == BPF_ALU | BPF_AND | BPF_K {
                value &= one.k;
            } else if code == BPF_JMP | BPF_JEQ | BPF_K {
                at += jump(value == one.k);
            } else if code == BPF_JMP | BPF_JGE | BPF_K {
                at += jump(value >= one.k);
            } else if code == BPF_JMP | BPF_JSET | BPF_K {
                at += jump(value & one.k != 0);
            } else {
                panic!("instruction {code:#x}");
            }
        }
    }

    const HIGH_BITS: u64 = 0xFFFF_FFFF_0000_0000;

    #[test]
    fn the_program_decides_as_the_list_says() {
        let off = build_program(
            SeccompFilter { loopback: false, without_namespaces: false, restrictions: Restrictions::ALL },
            REPORTED,
        );
        let on = build_program(
            SeccompFilter { loopback: true, without_namespaces: false, restrictions: Restrictions::ALL },
            REPORTED,
        );
        let (inet, unix) = (libc::AF_INET as u64, libc::AF_UNIX as u64);
        let (stream, datagram) = (libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64);
        let flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
        let new_user = libc::CLONE_NEWUSER as u64;
        #[rustfmt::skip]
        let table: &[(c_long, [u64; 6], u32, u32)] = &[
            (libc::SYS_read, [0; 6], ALLOW, ALLOW),
            (libc::SYS_openat, [0; 6], ALLOW, ALLOW),
            (libc::SYS_openat2, [0; 6], NOT_IMPLEMENTED, NOT_IMPLEMENTED),
            (libc::SYS_ptrace, [0; 6], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_io_uring_setup, [0; 6], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_kexec_file_load, [0; 6], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_clone3, [0; 6], NOT_IMPLEMENTED, NOT_IMPLEMENTED),
            (libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0], ALLOW, ALLOW),
            (libc::SYS_clone, [new_user, 0, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_clone, [new_user | HIGH_BITS, 0, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_ioctl, [0, 0x5401, 0, 0, 0, 0], ALLOW, ALLOW),
            (libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_ioctl, [0, HIGH_BITS | 0x5412, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_ioctl, [0, 0x541C, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_socket, [inet, stream, 0, 0, 0, 0], NOT_PERMITTED, ALLOW),
            (libc::SYS_socket, [inet, stream | flags, 6, 0, 0, 0], NOT_PERMITTED, ALLOW),
            (libc::SYS_socket, [inet, stream, 132, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_socket, [libc::AF_INET6 as u64, stream, 0, 0, 0, 0], NOT_PERMITTED, ALLOW),
            (libc::SYS_socket, [inet, datagram, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_socket, [inet, libc::SOCK_RAW as u64, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_socket, [unix, stream, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_socket, [libc::AF_VSOCK as u64, stream, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_socket, [libc::AF_NETLINK as u64, 3, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_socketpair, [unix, stream | flags, 0, 0, 0, 0], ALLOW, ALLOW),
            (libc::SYS_socketpair, [unix, 5, 0, 0, 0, 0], ALLOW, ALLOW),
            (libc::SYS_socketpair, [unix, datagram, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_socketpair, [inet, stream, 0, 0, 0, 0], NOT_PERMITTED, NOT_PERMITTED),
            (libc::SYS_connect, [0; 6], NOT_PERMITTED, ALLOW),
            (libc::SYS_bind, [0; 6], NOT_PERMITTED, ALLOW),
        ];
        for (number, arguments, when_off, when_on) in table {
            assert_eq!(
                run_program(&off, *number, *arguments, ARCHITECTURE),
                *when_off,
                "{number} {arguments:x?} off"
            );
            assert_eq!(
                run_program(&on, *number, *arguments, ARCHITECTURE),
                *when_on,
                "{number} {arguments:x?} on"
            );
        }
    }

    #[test]
    fn where_nothing_hides_others_they_are_refused_by_call() {
        let hidden = build_program(
            SeccompFilter { loopback: false, without_namespaces: false, restrictions: Restrictions::ALL },
            REPORTED,
        );
        let alone = build_program(
            SeccompFilter { loopback: false, without_namespaces: true, restrictions: Restrictions::ALL },
            REPORTED,
        );
        let other_pid = 4711;
        #[rustfmt::skip]
        let table: &[(c_long, [u64; 6], u32)] = &[
            (libc::SYS_shmget, [0; 6], NOT_PERMITTED),
            (libc::SYS_msgrcv, [0; 6], NOT_PERMITTED),
            (libc::SYS_mq_open, [0; 6], NOT_PERMITTED),
            (libc::SYS_prlimit64, [0; 6], ALLOW),
            (libc::SYS_prlimit64, [other_pid, 0, 0, 0, 0, 0], NOT_PERMITTED),
            (libc::SYS_setpriority, [0, 0, 5, 0, 0, 0], ALLOW),
            (libc::SYS_setpriority, [0, other_pid, 5, 0, 0, 0], NOT_PERMITTED),
            (libc::SYS_ioprio_set, [1, other_pid, 0, 0, 0, 0], NOT_PERMITTED),
            (libc::SYS_sched_setaffinity, [0, 8, 0, 0, 0, 0], ALLOW),
            (libc::SYS_sched_setaffinity, [other_pid, 8, 0, 0, 0, 0], NOT_PERMITTED),
            // The kernel uses the low half of a process id.
            (libc::SYS_sched_setattr, [HIGH_BITS | other_pid, 0, 0, 0, 0, 0], NOT_PERMITTED),
            (libc::SYS_kill, [other_pid, 9, 0, 0, 0, 0], ALLOW),
        ];
        for (number, arguments, expected) in table {
            assert_eq!(
                run_program(&alone, *number, *arguments, ARCHITECTURE),
                *expected,
                "{number} {arguments:x?}"
            );
            assert_eq!(
                run_program(&hidden, *number, *arguments, ARCHITECTURE),
                ALLOW,
                "{number} {arguments:x?} hidden"
            );
        }
    }

    #[test]
    fn only_a_mode_with_a_set_id_bit_is_reported() {
        let program = build_program(
            SeccompFilter { loopback: false, without_namespaces: false, restrictions: Restrictions::ALL },
            REPORTED,
        );
        let decided = |number, arguments| run_program(&program, number, arguments, ARCHITECTURE);
        let with = |at: u32, value: u64| {
            let mut arguments = [0; 6];
            arguments[at as usize] = value;
            arguments
        };
        for (number, mode) in MODE_CALLS {
            for plain in [0, 0o777, 0o1777, 0o100_644, 0o40_755, HIGH_BITS | 0o755] {
                assert_eq!(decided(*number, with(*mode, plain)), ALLOW, "{number} {plain:o}");
            }
            for bad in [0o4755, 0o2755, 0o6000, 0o7777, 0o104_755, HIGH_BITS | 0o4000, 0xFFFF_FFFF] {
                assert_eq!(decided(*number, with(*mode, bad)), REPORTED, "{number} {bad:o}");
            }
            // The other arguments are not modes.
            for other in (0..6).filter(|other| other != mode) {
                assert_eq!(decided(*number, with(other, u64::MAX)), ALLOW, "{number} {other}");
            }
        }
        let (create, tmpfile) = (libc::O_CREAT as u64, libc::O_TMPFILE as u64);
        for (number, flags) in FLAG_CALLS {
            for (given, mode, expected) in [
                (create, 0o644, ALLOW),
                (create | libc::O_WRONLY as u64, 0o1666, ALLOW),
                (tmpfile, 0o600, ALLOW),
                // Without one of these flags the kernel ignores the mode, and libc leaves an arbitrary value there.
                (libc::O_WRONLY as u64, 0o4755, ALLOW),
                ((libc::O_DIRECTORY | libc::O_PATH) as u64, 0o7777, ALLOW),
                (create, 0o4755, REPORTED),
                (create | libc::O_EXCL as u64, 0o2755, REPORTED),
                (tmpfile | libc::O_RDWR as u64, 0o6755, REPORTED),
                (HIGH_BITS | create, HIGH_BITS | 0o4000, REPORTED),
            ] {
                let mut arguments = with(*flags, given);
                arguments[*flags as usize + 1] = mode;
                assert_eq!(decided(*number, arguments), expected, "{number} {given:o} {mode:o}");
            }
        }
    }

    #[test]
    fn a_foreign_interface_ends_the_process() {
        let program = build_program(
            SeccompFilter { loopback: true, without_namespaces: false, restrictions: Restrictions::ALL },
            REPORTED,
        );
        // i386 and arm: `read` has another number there.
        for foreign in [0x4000_0003, 0x4000_0028] {
            assert_eq!(run_program(&program, libc::SYS_read, [0; 6], foreign), KILL);
        }
        if cfg!(target_arch = "x86_64") {
            let x32 = libc::SYS_read | c_long::from(X32);
            assert_eq!(run_program(&program, x32, [0; 6], ARCHITECTURE), KILL);
        }
    }

    /// As in a sandbox inside a sandbox: the outer one has the listener, so the inner one cannot have one.
    #[test]
    fn a_filter_without_a_listener_refuses_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("file")).unwrap();
        let filter_spec =
            SeccompFilter { loopback: true, without_namespaces: false, restrictions: Restrictions::ALL };
        // A filter belongs to the thread and ends with it.
        let tried = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            let outer = install_filter(filter_spec).unwrap();
            let inner = install_filter(filter_spec).unwrap();
            let set = |mode| rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode));
            (outer.is_some(), inner.is_some(), set(0o4755), set(0o2755), set(0o1755))
        });
        let refused = Err(rustix::io::Errno::PERM);
        assert_eq!(tried.join().unwrap(), (true, false, refused, refused, Ok(())));
    }

    #[test]
    fn a_wall_left_out_is_the_only_one_that_is() {
        let filter_spec = |restrictions| {
            build_program(
                SeccompFilter { loopback: false, without_namespaces: false, restrictions },
                REPORTED,
            )
        };
        let (socket, ptrace) = (libc::SYS_socket, libc::SYS_ptrace);
        let without = filter_spec(Restrictions::ALL.without(Restrictions::SECCOMP_SOCKETS));
        assert_eq!(run_program(&without, socket, [0; 6], ARCHITECTURE), ALLOW);
        assert_eq!(run_program(&without, ptrace, [0; 6], ARCHITECTURE), NOT_PERMITTED);
        let without = filter_spec(Restrictions::ALL.without(Restrictions::SECCOMP_CALLS));
        assert_eq!(run_program(&without, socket, [0; 6], ARCHITECTURE), NOT_PERMITTED);
        assert_eq!(run_program(&without, ptrace, [0; 6], ARCHITECTURE), ALLOW);
        let set_id = [0, 0o4755, 0, 0, 0, 0];
        assert_eq!(run_program(&without, libc::SYS_fchmod, set_id, ARCHITECTURE), REPORTED);
        let without = filter_spec(Restrictions::ALL.without(Restrictions::SECCOMP_SET_ID));
        assert_eq!(run_program(&without, libc::SYS_fchmod, set_id, ARCHITECTURE), ALLOW);
        assert_eq!(run_program(&without, ptrace, [0; 6], ARCHITECTURE), NOT_PERMITTED);
    }
}
