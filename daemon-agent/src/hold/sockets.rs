//! Data waiting in sockets, as the kernel reports it: sock_diag(7).

use std::{collections::HashSet, io, time::Duration};

use rustix::{
    fd::OwnedFd,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
};

/// Assumed for a socket that the kernel reports nothing about: Linux's default send buffer, bytes.
const DEFAULT_BUFFER_BYTES: u64 = 212_992;
/// The kernel answers at once; a supervisor never waits longer than this.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST`, `NLM_F_DUMP`.
const REQUEST_AND_DUMP: u16 = 0x301;

const AF_UNIX: u8 = 1;
const INTERNET_FAMILIES: [u8; 2] = [2, 10];
const INTERNET_PROTOCOLS: [u8; 2] = [6, 17];

/// The layout of answers about a kind of sockets: bytes before the attributes, offset of the inode, and the number of
/// the memory attribute.
struct MessageLayout {
    head: usize,
    inode: usize,
    memory: u16,
}

const LOCAL_LAYOUT: MessageLayout = MessageLayout { head: 16, inode: 4, memory: 5 };
const INTERNET_LAYOUT: MessageLayout = MessageLayout { head: 72, inode: 68, memory: 7 };
/// `UDIAG_SHOW_PEER`, `_RQLEN`, `_MEMINFO`.
const UDIAG_SHOW: u32 = 0x4 | 0x10 | 0x20;
/// Attributes of local sockets: the peer, and how much was not read yet.
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_RQLEN: u16 = 4;

/// Bytes of memory that wait in these sockets (inodes), or in the whole network namespace.
pub fn memory(held: &HashSet<u64>, all: bool) -> u64 {
    if held.is_empty() && !all {
        return 0;
    }
    let mut sum = 0;
    let mut count = |layout: &MessageLayout, message: &[u8]| {
        if let Some((inode, bytes)) = one(layout, message)
            && (all || held.contains(&inode))
        {
            sum += bytes;
        }
    };
    let mut counted = ask(&local(), |message| count(&LOCAL_LAYOUT, message));
    for family in INTERNET_FAMILIES {
        for protocol in INTERNET_PROTOCOLS {
            // A kernel without IPv6 has no such sockets.
            let asked = ask(&internet(family, protocol), |message| count(&INTERNET_LAYOUT, message));
            counted = counted.and(asked.or_else(|error| (family != INTERNET_FAMILIES[0]).then_some(()).ok_or(error)));
        }
    }
    match counted {
        Ok(()) => sum,
        Err(_) => sum.max(held.len() as u64 * DEFAULT_BUFFER_BYTES),
    }
}

/// A request for all local sockets: `unix_diag_req`.
fn local() -> Vec<u8> {
    let mut request = vec![AF_UNIX, 0, 0, 0];
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    request.extend(UDIAG_SHOW.to_ne_bytes());
    request.extend([0xff; 8]);
    request
}

/// A request for all sockets of one protocol: `inet_diag_req_v2`.
fn internet(family: u8, protocol: u8) -> Vec<u8> {
    let mut request = vec![family, protocol, 1 << (INTERNET_LAYOUT.memory - 1), 0];
    request.extend(u32::MAX.to_ne_bytes());
    request.extend([0; 48]);
    request
}

/// Sends the request and passes each answer, without its header, to `take`.
fn ask(request: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(REPLY_TIMEOUT))?;
    let mut message = Vec::with_capacity(16 + request.len());
    message.extend((16 + request.len() as u32).to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST_AND_DUMP.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(request);
    send(&socket, &message, SendFlags::empty())?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length];
        if rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(length) = number(rest, 0) {
            let Some(message) = rest.get(..length as usize).filter(|message| message.len() >= 16) else { break };
            match short(message, 4) {
                Some(NLMSG_DONE) => return Ok(()),
                Some(NLMSG_ERROR) => return Err(io::ErrorKind::Unsupported.into()),
                Some(SOCK_DIAG_BY_FAMILY) => take(&message[16..]),
                _ => {}
            }
            rest = rest.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// The inode of the socket in a message, and the bytes that wait in it.
fn one(layout: &MessageLayout, message: &[u8]) -> Option<(u64, u64)> {
    let inode = number(message, layout.inode)?;
    let (mut waiting, mut unread, mut peer) = (0, 0, 0);
    let mut rest = message.get(layout.head..)?;
    while let (Some(length), Some(kind)) = (short(rest, 0), short(rest, 2)) {
        let length = usize::from(length);
        let Some(value) = rest.get(4..length) else { break };
        let at = |index: usize| u64::from(number(value, index * 4).unwrap_or(0));
        if kind == layout.memory {
            // Received, sent or queued, kept for options, and backlogged.
            waiting = at(0) + at(2).max(at(5)) + at(6) + at(7);
        } else if layout.head == LOCAL_LAYOUT.head && kind == UNIX_DIAG_RQLEN {
            unread = at(0);
        } else if layout.head == LOCAL_LAYOUT.head && kind == UNIX_DIAG_PEER {
            peer = at(0);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    // What a local socket sent is charged to it until it is read. Once it is closed, only the reader is left to count
    // it.
    let orphaned = if peer == 0 { unread } else { 0 };
    Some((u64::from(inode), waiting + orphaned))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::{
            fd::AsRawFd,
            unix::net::{UnixDatagram, UnixStream},
        },
    };

    use super::*;

    fn inode(socket: &impl AsRawFd) -> u64 {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("a socket");
        let link = link.to_str().expect("text");
        link.trim_start_matches("socket:[").trim_end_matches(']').parse().expect("a number")
    }

    #[test]
    fn what_was_not_read_yet_counts_also_when_its_sender_is_gone() {
        let (mut one, other) = UnixStream::pair().expect("a pair");
        one.write_all(&[1; 50_000]).expect("sent");
        let held = HashSet::from([inode(&one), inode(&other)]);
        assert!(memory(&held, false) >= 50_000);
        assert!(memory(&HashSet::from([inode(&other)]), false) < 50_000, "it is charged to its sender");
        drop(one);
        assert!(memory(&HashSet::from([inode(&other)]), false) >= 50_000);
        let (one, other) = UnixDatagram::pair().expect("a pair");
        one.send(&[1; 50_000]).expect("sent");
        assert!(memory(&HashSet::from([inode(&one), inode(&other)]), false) >= 50_000);
        assert_eq!(memory(&HashSet::new(), false), 0);
    }
}
