//! What the kernel tells of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::check;

/// A part of `struct tcp_info` (linux/tcp.h), of Linux 4.10 and later.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds; 0: not measured yet.
    pub rtt_us: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Bytes of a segment.
    pub segment: u32,
    /// Segments sent again since the beginning.
    pub retransmitted: u32,
    /// Segments with payload that were sent.
    pub data_segments: u32,
    /// Payload that was acknowledged, bytes; SYN and FIN count as one each.
    pub acked: u64,
}

/// Bytes of `struct tcp_info` up to and with `tcpi_data_segs_out`.
const LENGTH: usize = 160;

impl TcpInfo {
    /// That of a TCP socket.
    ///
    /// # Errors
    /// It is none, or the kernel is older.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut info = [0_u8; LENGTH];
        let mut length = LENGTH as libc::socklen_t;
        // SAFETY: the kernel writes `length` bytes at most, which `info` has.
        check(unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        })?;
        if (length as usize) < LENGTH {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let four = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap_or_default());
        let acked = info[120..128].try_into().map(u64::from_ne_bytes).unwrap_or_default();
        Ok(Self {
            segment: four(16),
            rtt_us: four(68),
            cwnd: four(80),
            retransmitted: four(100),
            acked,
            data_segments: four(156),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_connection_tells_what_it_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(&[0; 10_000]).unwrap();
        receiver.read_exact(&mut [0; 10_000]).unwrap();
        // The acknowledgement may come a little after the data.
        let info = (0..100).map(|_| TcpInfo::of(&sender).unwrap()).find(|info| info.acked > 9_999);
        let info = info.expect("acknowledged on the same machine");
        assert_eq!((info.acked, info.retransmitted), (10_001, 0));
        assert!(info.data_segments >= 1 && info.segment >= 536 && info.cwnd >= 10, "{info:?}");
        assert!((1..1_000_000).contains(&info.rtt_us), "{info:?}");
        assert!(TcpInfo::of(&UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
