//! UDP in batches: many datagrams per system call, and the kernel's receive stamp of each.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use evenkeel_core::Nanos;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::{DayClock, check, monotonic_now, set_option};

/// The most datagrams one call sends or receives.
pub const MAX_BATCH: usize = 256;

/// Room for one receive stamp in a control message.
const CONTROL: usize = 64;

/// Sets the DSCP field of everything the socket sends, for its address family.
///
/// # Errors
/// `dscp` is above 63.
pub fn set_tos(socket: &UdpSocket, dscp: u8) -> io::Result<()> {
    if dscp > 63 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let value = dscp << 2;
    if socket.local_addr()?.is_ipv6() {
        sockopt::set_ipv6_tclass(socket, u32::from(value))?;
    } else {
        sockopt::set_ip_tos(socket, value)?;
    }
    Ok(())
}

/// Sets the size of the receive buffer, bytes, beyond the system's limit if the process may.
///
/// # Errors
/// None that is known.
pub fn set_receive_buffer(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = doubled_by_the_kernel(bytes);
    Ok(sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes))?)
}

/// Sets the size of the send buffer, bytes, beyond the system's limit if the process may.
///
/// # Errors
/// None that is known.
pub fn set_send_buffer(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = doubled_by_the_kernel(bytes);
    Ok(sockopt::set_socket_send_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes))?)
}

/// The largest size that the kernel takes: it doubles it for its own overhead, and keeps it in an
/// int.
fn doubled_by_the_kernel(bytes: u32) -> usize {
    bytes.min(i32::MAX as u32 / 2) as usize
}

/// A UDP socket bound to `address`, which other sockets made by this function may have too: for
/// senders, told apart by where they send.
///
/// # Errors
/// The address is not of this host, or a socket that does not share has it.
pub fn bind_shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    Ok(socket.into())
}

fn no_header() -> libc::mmsghdr {
    // SAFETY: mmsghdr is plain data; null pointers with zero lengths are valid in it.
    unsafe { std::mem::zeroed() }
}

/// Sends bursts of datagrams through a connected socket.
pub struct UdpSender {
    socket: UdpSocket,
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the raw pointers inside `parts` and `headers` are set before each call and not read after
// it.
unsafe impl Send for UdpSender {}

impl UdpSender {
    /// Takes a connected socket. The memory for the headers of `batch` datagrams, at most
    /// [`MAX_BATCH`], is taken once.
    #[must_use]
    pub fn new(socket: UdpSocket, batch: usize) -> Self {
        let batch = batch.clamp(1, MAX_BATCH);
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            socket,
            parts: vec![part; batch].into_boxed_slice(),
            headers: vec![no_header(); batch].into_boxed_slice(),
        }
    }

    /// Sends the datagrams that lie one after the other in `datagrams`, each `size` bytes (a
    /// shorter rest is not sent), at most a batch, in one system call. Returns how many were sent:
    /// fewer if the socket's buffer is full.
    ///
    /// # Errors
    /// None was sent, for a reason other than a full buffer: the destination refuses (a report of
    /// an earlier datagram), the network is unreachable, ...
    pub fn send(&mut self, datagrams: &[u8], size: usize) -> io::Result<usize> {
        let mut count = 0;
        for datagram in datagrams.chunks_exact(size.max(1)).take(self.parts.len()) {
            self.parts[count] = libc::iovec {
                iov_base: datagram.as_ptr().cast_mut().cast(),
                iov_len: datagram.len(),
            };
            let header = &mut self.headers[count].msg_hdr;
            header.msg_iov = &raw mut self.parts[count];
            header.msg_iovlen = 1;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: `count` headers are valid; each has one part, which points into `datagrams`; the
        // kernel only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                // Its type depends on the C library.
                libc::MSG_DONTWAIT as _,
            )
        };
        match check(sent) {
            Ok(sent) => Ok(sent as usize),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(0),
                _ => Err(error),
            },
        }
    }

    /// The socket.
    #[must_use]
    pub const fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// One received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Its payload; cut to the receiver's datagram size.
    pub bytes: &'a [u8],
    /// Its whole length.
    pub len: usize,
    /// When the kernel received it, CLOCK_MONOTONIC.
    pub arrival: Nanos,
}

/// Receives bursts of datagrams with the kernel's receive stamps.
pub struct UdpReceiver {
    socket: UdpSocket,
    day: DayClock,
    size: usize,
    bytes: Box<[u8]>,
    control: Box<[[u64; CONTROL / 8]]>,
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the raw pointers inside `parts` and `headers` are set before each call and not read after
// it.
unsafe impl Send for UdpReceiver {}

impl UdpReceiver {
    /// Takes a bound socket and asks the kernel for receive stamps. Keeps up to `size` bytes of
    /// each datagram.
    ///
    /// # Errors
    /// The socket does not stamp.
    pub fn new(socket: UdpSocket, size: usize) -> io::Result<Self> {
        set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        let size = size.max(1);
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            socket,
            day: DayClock::default(),
            size,
            bytes: vec![0; size * MAX_BATCH].into_boxed_slice(),
            control: vec![[0; CONTROL / 8]; MAX_BATCH].into_boxed_slice(),
            parts: vec![part; MAX_BATCH].into_boxed_slice(),
            headers: vec![no_header(); MAX_BATCH].into_boxed_slice(),
        })
    }

    /// Receives what waits, at most [`MAX_BATCH`] datagrams, in one system call, in order of
    /// arrival. With `wait`, waits for the first one as long as the socket's read time-out says;
    /// gives none when it has passed.
    ///
    /// # Errors
    /// The socket reports one.
    pub fn receive(&mut self, wait: bool) -> io::Result<impl Iterator<Item = Received<'_>>> {
        for i in 0..MAX_BATCH {
            self.parts[i] = libc::iovec {
                iov_base: self.bytes[i * self.size..].as_mut_ptr().cast(),
                iov_len: self.size,
            };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_iov = &raw mut self.parts[i];
            header.msg_iovlen = 1;
            header.msg_control = self.control[i].as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
        }
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: every header has one part of `size` writable bytes and CONTROL writable bytes for
        // control messages. MSG_TRUNC makes the kernel report the whole length and still write no
        // more than the part holds.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                MAX_BATCH as libc::c_uint,
                (flags | libc::MSG_TRUNC) as _,
                std::ptr::null_mut(),
            )
        };
        let received = match check(received) {
            Ok(received) => received as usize,
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => 0,
                _ => return Err(error),
            },
        };
        let now = monotonic_now();
        let mut stamps = self.day.until(now);
        let (bytes, size) = (&self.bytes, self.size);
        Ok(self.headers[..received].iter().enumerate().map(move |(i, header)| {
            let len = header.msg_len as usize;
            let arrival = stamp(&header.msg_hdr).map_or(now, |stamp| stamps.arrival(stamp));
            Received { bytes: &bytes[i * size..][..len.min(size)], len, arrival }
        }))
    }

    /// The socket.
    #[must_use]
    pub const fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// The SCM_TIMESTAMPNS message of a received datagram, nanoseconds of CLOCK_REALTIME.
fn stamp(header: &libc::msghdr) -> Option<i64> {
    // SAFETY: the kernel has filled `header`, whose control buffer lives in the receiver and is
    // aligned for cmsghdr.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a whole message inside the control
        // buffer.
        let (level, kind) = unsafe { ((*message).cmsg_level, (*message).cmsg_type) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: a message of this kind holds a timespec, at no particular alignment.
            let time: libc::timespec =
                unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(message).cast()) };
            return Some(time.tv_sec * 1_000_000_000 + time.tv_nsec);
        }
        // SAFETY: as above.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UdpSender, UdpReceiver) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        (UdpSender::new(sender, MAX_BATCH), UdpReceiver::new(receiver, 64).unwrap())
    }

    #[test]
    fn a_burst_arrives_in_order_with_stamps_between_before_and_after() {
        let (mut sender, mut receiver) = pair();
        let before = monotonic_now();
        let burst: Vec<u8> = (0..200u8).flat_map(|i| [i; 40]).collect();
        assert_eq!(sender.send(&burst, 40).unwrap(), 200);
        let mut expected = 0u8;
        let mut last = Nanos(before.0 - 1_000_000);
        while expected < 200 {
            for datagram in receiver.receive(true).unwrap() {
                assert_eq!(datagram.bytes, [expected; 40]);
                assert!(datagram.arrival >= last && datagram.arrival <= monotonic_now());
                last = datagram.arrival;
                expected += 1;
            }
        }
        assert_eq!(receiver.receive(false).unwrap().count(), 0);
    }

    #[test]
    fn a_long_datagram_is_cut_and_its_length_told() {
        let (mut sender, mut receiver) = pair();
        assert_eq!(sender.send(&[1; 150], 100).unwrap(), 1);
        let lengths: Vec<_> =
            receiver.receive(true).unwrap().map(|d| (d.bytes.len(), d.len)).collect();
        assert_eq!(lengths, [(64, 100)]);
        assert_eq!(sender.send(&[], 100).unwrap(), 0);
    }

    #[test]
    fn a_shared_port_sends_to_two_receivers() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            // A kernel without IPv6 has no such address.
            let Ok(free) = UdpSocket::bind(host) else { continue };
            let address = free.local_addr().unwrap();
            assert!(bind_shared(address).is_err(), "its owner does not share");
            drop(free);
            let receivers = [UdpSocket::bind(host).unwrap(), UdpSocket::bind(host).unwrap()];
            let mut senders = Vec::new();
            for receiver in &receivers {
                let sender = bind_shared(address).unwrap();
                sender.connect(receiver.local_addr().unwrap()).unwrap();
                sender.send(b"x").unwrap();
                let mut byte = [0; 2];
                receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
                assert_eq!(receiver.recv_from(&mut byte).unwrap(), (1, address));
                senders.push(sender);
            }
        }
    }

    #[test]
    fn the_mark_is_what_was_asked_for() {
        let (sender, _receiver) = pair();
        set_tos(sender.socket(), 46).unwrap();
        assert!(set_tos(sender.socket(), 64).is_err());
        set_receive_buffer(sender.socket(), 1 << 20).unwrap();
        set_send_buffer(sender.socket(), 1 << 20).unwrap();
    }
}
