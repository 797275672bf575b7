//! The MTU of interfaces, and advice about it where AF_XDP may serve them.

use evenkeel_config::{Attach, Io, RouterConfig};
use evenkeel_core::Bytes;
use evenkeel_ports::af_xdp::{buffers_of, longest_mtu};
use evenkeel_ports::virtual_driver;

/// The larger buffers that AF_XDP has.
const LARGE: Bytes = Bytes(4_096);

pub(super) fn advice(config: &RouterConfig) -> Vec<String> {
    let of_port = |port: &evenkeel_config::PortConfig| {
        let is_hardware = || matches!(virtual_driver(&port.interface), Ok(None));
        let may_be_xdp = match config.io_of(port) {
            Io::AfXdp => true,
            Io::Auto => is_hardware(),
            Io::AfPacket => false,
        };
        let asked = may_be_xdp && port.attach() == Attach::Route;
        let mtu = asked.then(|| mtu_of(config, &port.name)).flatten()?;
        of_mtu(&port.name, mtu.0 as u32, config.router.buffer_size)
    };
    config.ports.iter().filter_map(of_port).collect()
}

/// The MTU of a port's interface, if this machine has it.
pub(super) fn mtu_of(config: &RouterConfig, port: &str) -> Option<Bytes> {
    let interface = &config.ports.iter().find(|own| own.name == port)?.interface;
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?;
    text.trim().parse().ok().map(Bytes)
}

/// What is to be said of an MTU with buffers of a size.
fn of_mtu(port: &str, mtu: u32, buffer: Bytes) -> Option<String> {
    let longest = |size: Bytes, in_pieces| longest_mtu(size.0 as usize, in_pieces);
    // As the documentation writes them.
    let (size, large) = (format!("{}B", buffer.0), format!("{}B", LARGE.0));
    if !matches!(buffer.0, 2_048 | 4_096) || mtu <= longest(buffer, false) {
        return None;
    }
    if mtu > longest(buffer, true) {
        let larger = format!(", and with \"{large}\" {}", longest(LARGE, true));
        return Some(format!(
            "port {port}: with buffer_size = \"{size}\" AF_XDP takes an MTU of up to {}{}: that of \
             {mtu} is for packet sockets",
            longest(buffer, true),
            if buffer < LARGE { &larger } else { "" }
        ));
    }
    let whole = if mtu <= longest(LARGE, false) {
        format!("; buffer_size = \"{large}\" takes each in one")
    } else {
        String::new()
    };
    Some(format!(
        "port {port}: with buffer_size = \"{size}\" packets longer than {} bytes, of an MTU of \
         {mtu}, take up to {} buffers each and are copied; AF_XDP has that since Linux 6.6{whole}",
        longest(buffer, false),
        buffers_of(mtu, buffer.0 as usize)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_beyond_a_buffer_is_told_with_what_is_possible() {
        let [small, large] = [2_048, 4_096].map(Bytes);
        let told = |mtu, buffer| of_mtu("lan", mtu, buffer).unwrap();
        assert_eq!((of_mtu("lan", 1_774, small), of_mtu("lan", 3_822, large)), (None, None));
        assert_eq!(of_mtu("lan", 9_000, Bytes(9_216)), None, "AF_XDP has no such buffers");
        let text = told(3_822, small);
        assert!(text.contains("1774") && text.contains("\"4096B\" takes each in one"), "{text}");
        let text = told(9_000, small);
        assert!(text.contains("up to 5 buffers") && !text.contains("4096B"), "{text}");
        assert!(told(9_000, large).contains("up to 3 buffers"));
        let text = told(34_799, small);
        assert!(text.contains("up to 34798, and with \"4096B\" 65535"), "{text}");
    }
}
