//! Sockets: the network, sockets of the machine and of pods, and the ways to one that do not begin with `socket`.

use std::io::{self, IoSlice};
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

use crate::inside::{CANARY, Ground, holds};
use crate::probe::{Bare, Probe, Seen, Stage, Wall, probe, tried, tried_if};
use crate::sys::sys;

pub(super) const PROBES: &[Probe] = &[
    probe("tcp-connect", "socket, connect", Wall::SeccompSockets, |g| tried(TcpStream::connect(v4(g)))),
    probe("tcp6-connect", "socket, connect", Wall::SeccompSockets, |g| {
        let port = g.number("tcp6_port");
        if port < 0 {
            return Seen::Absent("no IPv6 here".to_owned());
        }
        tried(TcpStream::connect(SocketAddrV6::new(Ipv6Addr::LOCALHOST, port as u16, 0, 0)))
    })
    .bare(Bare::IfOffered),
    probe("tcp-bind", "socket, bind, listen", Wall::LandlockTcp, |_| tried(TcpListener::bind("127.0.0.1:0"))),
    probe("tcp-fast-open", "sendto MSG_FASTOPEN", Wall::SeccompSockets, |g| {
        // Connects without `connect`.
        let port = (g.number("tcp_port") as u16).to_be();
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
        tried(sent)
    }),
    probe("udp-send", "socket, sendto", Wall::SeccompSockets, |g| {
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, g.number("udp_port") as u16);
        tried(UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"udp-send", to)))
    }),
    probe("raw-socket", "socket SOCK_RAW", Wall::SeccompSockets, |_| {
        tried(sys!(SYS_socket, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))
    })
    .bare(Bare::AsRoot),
    probe("packet-socket", "socket AF_PACKET", Wall::SeccompSockets, |_| {
        tried_if(sys!(SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0), &[libc::EAFNOSUPPORT])
    })
    .bare(Bare::IfOffered),
    probe("netlink-socket", "socket AF_NETLINK", Wall::SeccompSockets, |_| {
        tried(sys!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE))
    }),
    probe("vsock", "socket AF_VSOCK", Wall::SeccompSockets, |_| {
        tried_if(sys!(SYS_socket, libc::AF_VSOCK, libc::SOCK_STREAM, 0), &[libc::EAFNOSUPPORT])
    })
    .bare(Bare::IfOffered),
    probe("alg-socket", "socket AF_ALG", Wall::SeccompSockets, |_| {
        tried_if(sys!(SYS_socket, libc::AF_ALG, libc::SOCK_SEQPACKET, 0), &[libc::EAFNOSUPPORT])
    })
    .bare(Bare::IfOffered),
    probe("unix-abstract", "connect, abstract name", Wall::SeccompSockets, |g| {
        let address = SocketAddr::from_abstract_name(g.fact("abstract"));
        tried(address.and_then(|address| UnixStream::connect_addr(&address)))
    }),
    probe("unix-path-outside", "connect, path", Wall::SeccompSockets, |g| {
        tried(UnixStream::connect(g.outside("socket")))
    }),
    probe("unix-path-own-pod", "connect, path", Wall::SeccompSockets, |g| {
        tried(UnixStream::connect(g.at("runtime/pods/probe/pod.sock")))
    }),
    probe("unix-path-other-pod", "connect, path", Wall::SeccompSockets, |g| {
        tried(UnixStream::connect(g.at("runtime/pods/other/pod.sock")))
    }),
    probe("unix-path-proxy", "connect, path", Wall::SeccompSockets, |g| {
        tried(UnixStream::connect(g.at("runtime/pods/probe/proxy.sock")))
    }),
    probe("unix-path-in-scope", "connect, path", Wall::SeccompSockets, |g| {
        tried(UnixStream::connect(g.work("host.sock")))
    }),
    probe("unix-bind-in-scope", "bind, path", Wall::SeccompSockets, |g| {
        tried(UnixListener::bind(g.own("own.sock")))
    }),
    probe("unix-datagram", "socket, sendto, path", Wall::SeccompSockets, |g| {
        tried(UnixDatagram::unbound().and_then(|s| s.send_to(b"unix-datagram", g.work("host-dgram.sock"))))
    }),
    probe("pair-sendto", "socketpair, sendto, path", Wall::SeccompSockets, |g| {
        let path = unix_address(&g.work("host-dgram.sock"));
        tried(pair(libc::SOCK_DGRAM).and_then(|fd| {
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
    probe("pair-sendmsg", "socketpair, sendmsg, path", Wall::SeccompSockets, |g| {
        pair_sendmsg(g, libc::SOCK_DGRAM)
    }),
    probe("pair-sendmsg-flags", "socketpair SOCK_CLOEXEC, sendmsg", Wall::SeccompSockets, |g| {
        pair_sendmsg(g, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
    }),
    probe("pair-raw-sendmsg", "socketpair SOCK_RAW, sendmsg", Wall::SeccompSockets, |g| {
        // For Unix sockets raw means datagram.
        pair_sendmsg(g, libc::SOCK_RAW)
    }),
    probe("pair-sendmmsg", "socketpair, sendmmsg, path", Wall::SeccompSockets, pair_sendmmsg),
    probe("pair-reconnect", "socketpair, connect, path", Wall::SeccompSockets, |g| {
        let path = unix_address(&g.work("host-dgram.sock"));
        tried(pair(libc::SOCK_DGRAM).and_then(|fd| {
            sys!(SYS_connect, fd, &raw const path, size_of::<libc::sockaddr_un>())?;
            sys!(SYS_write, fd, b"pair-reconnect".as_ptr(), 14)
        }))
    }),
    probe("proc-net-tcp", "openat /proc/net/tcp", Wall::NetNamespace, |g| {
        let port = format!(":{:04X} ", g.number("tcp_port"));
        match std::fs::read_to_string("/proc/net/tcp") {
            Ok(text) if text.contains(&port) => Seen::Done("the listener".to_owned()),
            Ok(_) => Seen::Held("not among them".to_owned()),
            err => tried(err),
        }
    })
    .left_by_b(crate::probe::Rest::Processes),
    probe("proxied-tcp-connect", "connect", Wall::NetNamespace, |g| tried(TcpStream::connect(v4(g))))
        .on(Stage::Proxy),
    probe("proxied-udp", "socket SOCK_DGRAM", Wall::SeccompSockets, |g| {
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, g.number("udp_port") as u16);
        tried(UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"proxied-udp", to)))
    })
    .on(Stage::Proxy),
    probe("proxied-unix", "connect, path", Wall::SeccompSockets, |g| {
        tried(UnixStream::connect(g.work("host.sock")))
    })
    .on(Stage::Proxy),
    probe("proxied-proxy-socket", "connect, path", Wall::SeccompSockets, |g| {
        tried(UnixStream::connect(g.at("runtime/pods/probe/proxy.sock")))
    })
    .on(Stage::Proxy),
    probe("proxied-abstract", "connect, abstract name", Wall::SeccompSockets, |g| {
        let address = SocketAddr::from_abstract_name(g.fact("abstract"));
        tried(address.and_then(|address| UnixStream::connect_addr(&address)))
    })
    .on(Stage::Proxy),
    probe("proxied-netlink", "socket AF_NETLINK", Wall::SeccompSockets, |_| {
        tried(sys!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE))
    })
    .on(Stage::Proxy),
    probe("proxied-raw", "socket SOCK_RAW", Wall::SeccompSockets, |_| {
        tried(sys!(SYS_socket, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))
    })
    .on(Stage::Proxy)
    .bare(Bare::AsRoot),
    probe("proxied-pair-sendmsg", "socketpair, sendmsg, path", Wall::SeccompSockets, |g| {
        pair_sendmsg(g, libc::SOCK_DGRAM)
    })
    .on(Stage::Proxy),
];

fn v4(g: &Ground) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, g.number("tcp_port") as u16)
}

/// One end of a pair, which is the one kind of socket that a command may make.
fn pair(kind: i32) -> io::Result<RawFd> {
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

/// The address of a message lies behind a pointer, where a filter of system calls cannot look.
fn pair_sendmsg(g: &Ground, kind: i32) -> Seen {
    let address = unix_address(&g.work("host-dgram.sock"));
    let text = IoSlice::new(g.name().as_bytes());
    let message = message(&address, &text);
    tried(pair(kind).and_then(|fd| sys!(SYS_sendmsg, fd, &raw const message, 0)))
}

fn pair_sendmmsg(g: &Ground) -> Seen {
    let address = unix_address(&g.work("host-dgram.sock"));
    let text = IoSlice::new(g.name().as_bytes());
    let many = [libc::mmsghdr { msg_hdr: message(&address, &text), msg_len: 0 }];
    tried(pair(libc::SOCK_DGRAM).and_then(|fd| sys!(SYS_sendmmsg, fd, many.as_ptr(), 1, 0)))
}

fn message(address: &libc::sockaddr_un, text: &IoSlice<'_>) -> libc::msghdr {
    // SAFETY: a header of zeros is a message without address, text or ancillary data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw const *address).cast_mut().cast();
    message.msg_namelen = size_of::<libc::sockaddr_un>() as u32;
    message.msg_iov = (&raw const *text).cast_mut().cast();
    message.msg_iovlen = 1;
    message
}

/// A pair of the allowed kind, with a descriptor sent over it: what `socketpair` is needed for.
pub(super) fn pair_works(_: &Ground) -> Seen {
    let made = UnixStream::pair().and_then(|(mut a, mut b)| {
        use std::io::{Read, Write};
        a.write_all(CANARY.as_bytes())?;
        let mut text = vec![0; CANARY.len()];
        b.read_exact(&mut text)?;
        debug_assert!(a.as_raw_fd() >= 0);
        Ok(text)
    });
    match made {
        Ok(text) if holds(&text) => Seen::Done("a pair".to_owned()),
        Ok(_) => Seen::Held("other bytes came".to_owned()),
        err => tried(err),
    }
}
