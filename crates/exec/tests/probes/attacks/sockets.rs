//! Sockets: the network, sockets of the host and of pods, and ways to a socket without `socket`.

use std::io::{self, IoSlice};
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

use crate::attacker::{AttackContext, CANARY, contains_canary};
use crate::probe::{
    ProbeOutcome, ProbeStage, SandboxProbe, TestedRestriction, UnsandboxedResult, attack_probe, outcome_of,
    outcome_unless,
};
use crate::sys::sys;

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("tcp-connect", "socket, connect", TestedRestriction::SeccompSockets, |g| {
        outcome_of(TcpStream::connect(loopback_address(g)))
    }),
    attack_probe("tcp6-connect", "socket, connect", TestedRestriction::SeccompSockets, |g| {
        let port = g.fact_number("tcp6_port");
        if port < 0 {
            return ProbeOutcome::Absent("no IPv6 here".to_owned());
        }
        outcome_of(TcpStream::connect(SocketAddrV6::new(Ipv6Addr::LOCALHOST, port as u16, 0, 0)))
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("tcp-bind", "socket, bind, listen", TestedRestriction::LandlockTcp, |_| {
        outcome_of(TcpListener::bind("127.0.0.1:0"))
    }),
    attack_probe("tcp-fast-open", "sendto MSG_FASTOPEN", TestedRestriction::SeccompSockets, |g| {
        // Connects without `connect`.
        let port = (g.fact_number("tcp_port") as u16).to_be();
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: port,
            sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
            sin_zero: [0; 8],
        };
        let sent = sys!(SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0).and_then(|fd| {
            let length = size_of::<libc::sockaddr_in>();
            sys!(SYS_sendto, fd, b"x".as_ptr(), 1, libc::MSG_FASTOPEN, &raw const address, length)
        });
        outcome_of(sent)
    }),
    attack_probe("udp-send", "socket, sendto", TestedRestriction::SeccompSockets, |g| {
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, g.fact_number("udp_port") as u16);
        outcome_of(UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"udp-send", to)))
    }),
    attack_probe("raw-socket", "socket SOCK_RAW", TestedRestriction::SeccompSockets, |_| {
        outcome_of(sys!(SYS_socket, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))
    })
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("packet-socket", "socket AF_PACKET", TestedRestriction::SeccompSockets, |_| {
        outcome_unless(sys!(SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0), &[libc::EAFNOSUPPORT])
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("netlink-socket", "socket AF_NETLINK", TestedRestriction::SeccompSockets, |_| {
        outcome_of(sys!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE))
    }),
    attack_probe("vsock", "socket AF_VSOCK", TestedRestriction::SeccompSockets, |_| {
        outcome_unless(sys!(SYS_socket, libc::AF_VSOCK, libc::SOCK_STREAM, 0), &[libc::EAFNOSUPPORT])
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("alg-socket", "socket AF_ALG", TestedRestriction::SeccompSockets, |_| {
        outcome_unless(sys!(SYS_socket, libc::AF_ALG, libc::SOCK_SEQPACKET, 0), &[libc::EAFNOSUPPORT])
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("unix-abstract", "connect, abstract name", TestedRestriction::SeccompSockets, |g| {
        let address = SocketAddr::from_abstract_name(g.fact_text("abstract"));
        outcome_of(address.and_then(|address| UnixStream::connect_addr(&address)))
    }),
    attack_probe("unix-path-outside", "connect, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(UnixStream::connect(g.path_outside("socket")))
    }),
    attack_probe("unix-path-own-pod", "connect, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(UnixStream::connect(g.path_to("runtime/pods/probe/pod.sock")))
    }),
    attack_probe("unix-path-other-pod", "connect, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(UnixStream::connect(g.path_to("runtime/pods/other/pod.sock")))
    }),
    attack_probe("unix-path-proxy", "connect, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(UnixStream::connect(g.path_to("runtime/pods/probe/proxy.sock")))
    }),
    attack_probe("unix-path-in-scope", "connect, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(UnixStream::connect(g.path_in_work("host.sock")))
    }),
    attack_probe("unix-bind-in-scope", "bind, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(UnixListener::bind(g.own_path("own.sock")))
    }),
    attack_probe("unix-datagram", "socket, sendto, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(
            UnixDatagram::unbound()
                .and_then(|s| s.send_to(b"unix-datagram", g.path_in_work("host-dgram.sock"))),
        )
    }),
    attack_probe("pair-sendto", "socketpair, sendto, path", TestedRestriction::SeccompSockets, |g| {
        let path = unix_address(&g.path_in_work("host-dgram.sock"));
        outcome_of(socket_pair(libc::SOCK_DGRAM).and_then(|fd| {
            let text = b"pair-sendto";
            sys!(
                SYS_sendto,
                fd,
                text.as_ptr(),
                text.len(),
                0,
                &raw const path,
                size_of::<libc::sockaddr_un>()
            )
        }))
    }),
    attack_probe("pair-sendmsg", "socketpair, sendmsg, path", TestedRestriction::SeccompSockets, |g| {
        pair_sendmsg(g, libc::SOCK_DGRAM)
    }),
    attack_probe(
        "pair-sendmsg-flags",
        "socketpair SOCK_CLOEXEC, sendmsg",
        TestedRestriction::SeccompSockets,
        |g| pair_sendmsg(g, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK),
    ),
    attack_probe(
        "pair-raw-sendmsg",
        "socketpair SOCK_RAW, sendmsg",
        TestedRestriction::SeccompSockets,
        |g| {
            // For Unix sockets, raw means datagram.
            pair_sendmsg(g, libc::SOCK_RAW)
        },
    ),
    attack_probe(
        "pair-sendmmsg",
        "socketpair, sendmmsg, path",
        TestedRestriction::SeccompSockets,
        pair_sendmmsg,
    ),
    attack_probe("pair-reconnect", "socketpair, connect, path", TestedRestriction::SeccompSockets, |g| {
        let path = unix_address(&g.path_in_work("host-dgram.sock"));
        outcome_of(socket_pair(libc::SOCK_DGRAM).and_then(|fd| {
            sys!(SYS_connect, fd, &raw const path, size_of::<libc::sockaddr_un>())?;
            sys!(SYS_write, fd, b"pair-reconnect".as_ptr(), 14)
        }))
    }),
    attack_probe("proc-net-tcp", "openat /proc/net/tcp", TestedRestriction::NetNamespace, |g| {
        let port = format!(":{:04X} ", g.fact_number("tcp_port"));
        match std::fs::read_to_string("/proc/net/tcp") {
            Ok(text) if text.contains(&port) => ProbeOutcome::Succeeded("the listener".to_owned()),
            Ok(_) => ProbeOutcome::Stopped("not among them".to_owned()),
            err => outcome_of(err),
        }
    })
    .left_by_landlock(crate::probe::DocumentedGap::Processes),
    attack_probe("proxied-tcp-connect", "connect", TestedRestriction::NetNamespace, |g| {
        outcome_of(TcpStream::connect(loopback_address(g)))
    })
    .in_stage(ProbeStage::Proxy),
    attack_probe("proxied-udp", "socket SOCK_DGRAM", TestedRestriction::SeccompSockets, |g| {
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, g.fact_number("udp_port") as u16);
        outcome_of(UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"proxied-udp", to)))
    })
    .in_stage(ProbeStage::Proxy),
    attack_probe("proxied-unix", "connect, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(UnixStream::connect(g.path_in_work("host.sock")))
    })
    .in_stage(ProbeStage::Proxy),
    attack_probe("proxied-proxy-socket", "connect, path", TestedRestriction::SeccompSockets, |g| {
        outcome_of(UnixStream::connect(g.path_to("runtime/pods/probe/proxy.sock")))
    })
    .in_stage(ProbeStage::Proxy),
    attack_probe("proxied-abstract", "connect, abstract name", TestedRestriction::SeccompSockets, |g| {
        let address = SocketAddr::from_abstract_name(g.fact_text("abstract"));
        outcome_of(address.and_then(|address| UnixStream::connect_addr(&address)))
    })
    .in_stage(ProbeStage::Proxy),
    attack_probe("proxied-netlink", "socket AF_NETLINK", TestedRestriction::SeccompSockets, |_| {
        outcome_of(sys!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE))
    })
    .in_stage(ProbeStage::Proxy),
    attack_probe("proxied-raw", "socket SOCK_RAW", TestedRestriction::SeccompSockets, |_| {
        outcome_of(sys!(SYS_socket, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))
    })
    .in_stage(ProbeStage::Proxy)
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe(
        "proxied-pair-sendmsg",
        "socketpair, sendmsg, path",
        TestedRestriction::SeccompSockets,
        |g| pair_sendmsg(g, libc::SOCK_DGRAM),
    )
    .in_stage(ProbeStage::Proxy),
];

fn loopback_address(g: &AttackContext) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, g.fact_number("tcp_port") as u16)
}

/// Returns one end of a socket pair, the only kind of socket that a command may create.
fn socket_pair(kind: i32) -> io::Result<RawFd> {
    let mut ends = [0i32; 2];
    sys!(SYS_socketpair, libc::AF_UNIX, kind, 0, ends.as_mut_ptr())?;
    Ok(ends[0])
}

fn unix_address(path: &Path) -> libc::sockaddr_un {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    for (slot, byte) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *slot = *byte as libc::c_char;
    }
    address
}

/// The address of a message is behind a pointer, which a system call filter cannot read.
fn pair_sendmsg(g: &AttackContext, kind: i32) -> ProbeOutcome {
    let address = unix_address(&g.path_in_work("host-dgram.sock"));
    let text = IoSlice::new(g.probe_name().as_bytes());
    let message = build_message(&address, &text);
    outcome_of(socket_pair(kind).and_then(|fd| sys!(SYS_sendmsg, fd, &raw const message, 0)))
}

fn pair_sendmmsg(g: &AttackContext) -> ProbeOutcome {
    let address = unix_address(&g.path_in_work("host-dgram.sock"));
    let text = IoSlice::new(g.probe_name().as_bytes());
    let many = [libc::mmsghdr { msg_hdr: build_message(&address, &text), msg_len: 0 }];
    outcome_of(socket_pair(libc::SOCK_DGRAM).and_then(|fd| sys!(SYS_sendmmsg, fd, many.as_ptr(), 1, 0)))
}

fn build_message(address: &libc::sockaddr_un, text: &IoSlice<'_>) -> libc::msghdr {
    // SAFETY: a zeroed header is a message without address, text or ancillary data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw const *address).cast_mut().cast();
    message.msg_namelen = size_of::<libc::sockaddr_un>() as u32;
    message.msg_iov = (&raw const *text).cast_mut().cast();
    message.msg_iovlen = 1;
    message
}

/// Uses an allowed pair to pass a descriptor, the usual purpose of `socketpair`.
pub(super) fn check_pair(_: &AttackContext) -> ProbeOutcome {
    let made = UnixStream::pair().and_then(|(mut a, mut b)| {
        use std::io::{Read, Write};
        a.write_all(CANARY.as_bytes())?;
        let mut text = vec![0; CANARY.len()];
        b.read_exact(&mut text)?;
        debug_assert!(a.as_raw_fd() >= 0);
        Ok(text)
    });
    match made {
        Ok(text) if contains_canary(&text) => ProbeOutcome::Succeeded("a pair".to_owned()),
        Ok(_) => ProbeOutcome::Stopped("other bytes came".to_owned()),
        err => outcome_of(err),
    }
}
