//! Device features by name, as `ethtool -k` shows them, and the name of the driver.

use crate::error::PortError;
use crate::interface::Control;

const GET_DRIVER: u32 = 0x03;
const GET_CHANNELS: u32 = 0x3c;
const GET_STRINGS: u32 = 0x1b;
const GET_STRING_COUNTS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// The set of strings that names the features.
const FEATURE_NAMES: u32 = 4;
/// Length of one name, bytes.
const NAME: usize = 32;

/// One feature of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Feature {
    pub(crate) name: String,
    pub(crate) on: bool,
    /// It can be changed.
    pub(crate) changeable: bool,
}

/// Name of the driver, "veth" for one.
pub(crate) fn driver(control: &Control, interface: &str) -> Result<String, PortError> {
    // struct ethtool_drvinfo: 196 bytes; the driver's name is 32 bytes from byte 4.
    let mut data = [0u32; 49];
    data[0] = GET_DRIVER;
    control.ethtool(interface, &mut data)?;
    Ok(text(&data[1..9]))
}

/// The driver of an interface behind which there is no device of a bus (veth, tun, bridge, VLAN);
/// `None`: there is one, or the driver does not say.
///
/// # Errors
/// There is no such interface.
pub fn virtual_driver(interface: &str) -> Result<Option<String>, PortError> {
    let control = Control::open()?;
    control.interface(interface)?;
    let mut data = [0u32; 49];
    data[0] = GET_DRIVER;
    if control.ethtool(interface, &mut data).is_err() {
        return Ok(None);
    }
    // Where it is on its bus: 32 bytes from byte 100.
    let bus = text(&data[25..33]);
    Ok(matches!(&*bus, "" | "N/A" | "tap").then(|| text(&data[1..9])))
}

/// How many queues a device has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    pub(crate) receive: u32,
    pub(crate) transmit: u32,
}

/// How many queues a device has; one each for one that cannot say.
pub(crate) fn queues(control: &Control, interface: &str) -> Result<Queues, PortError> {
    // struct ethtool_channels: command; maxima of rx, tx, other, combined; counts of the same.
    let mut data = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    match control.ethtool(interface, &mut data) {
        Ok(()) => {
            Ok(Queues { receive: (data[5] + data[8]).max(1), transmit: (data[6] + data[8]).max(1) })
        }
        Err(PortError::Unsupported { .. }) => Ok(Queues { receive: 1, transmit: 1 }),
        Err(error) => Err(error),
    }
}

/// All features, in the kernel's order.
pub(crate) fn features(control: &Control, interface: &str) -> Result<Vec<Feature>, PortError> {
    // struct ethtool_sset_info: command, reserved, mask (64 bits), one count per set asked for.
    let mut counts = [GET_STRING_COUNTS, 0, 0, 0, 0];
    counts[2..4].copy_from_slice(&mask());
    control.ethtool(interface, &mut counts)?;
    let count = counts[4] as usize;

    // struct ethtool_gstrings: command, set, count, names.
    let mut names = vec![0u32; 3 + count * NAME / 4];
    names[..3].copy_from_slice(&[GET_STRINGS, FEATURE_NAMES, count as u32]);
    control.ethtool(interface, &mut names)?;

    // struct ethtool_gfeatures: command, size in blocks; per block available, requested, active,
    // never changed.
    let blocks = count.div_ceil(32);
    let mut state = vec![0u32; 2 + 4 * blocks];
    state[..2].copy_from_slice(&[GET_FEATURES, blocks as u32]);
    control.ethtool(interface, &mut state)?;

    Ok((0..count)
        .map(|i| {
            let bit = |word: usize| state[2 + i / 32 * 4 + word] >> (i % 32) & 1 == 1;
            Feature {
                name: text(&names[3 + i * NAME / 4..][..NAME / 4]),
                on: bit(2),
                changeable: bit(0) && !bit(3),
            }
        })
        .collect())
}

/// Switches features on or off, as `wanted` says by name; for `None`, and what the device cannot
/// change, stays as it is.
pub(crate) fn set_features(
    control: &Control,
    interface: &str,
    wanted: impl Fn(&str) -> Option<bool>,
) -> Result<(), PortError> {
    let known = features(control, interface)?;
    let blocks = known.len().div_ceil(32);
    // struct ethtool_sfeatures: command, size in blocks; per block valid, requested.
    let mut request = vec![0u32; 2 + 2 * blocks];
    request[..2].copy_from_slice(&[SET_FEATURES, blocks as u32]);
    for (i, feature) in known.iter().enumerate().filter(|(_, feature)| feature.changeable) {
        if let Some(on) = wanted(&feature.name) {
            request[2 + i / 32 * 2] |= 1 << (i % 32);
            request[2 + i / 32 * 2 + 1] |= u32::from(on) << (i % 32);
        }
    }
    control.ethtool(interface, &mut request)
}

/// The mask of string sets, 64 bits, in two words of memory.
fn mask() -> [u32; 2] {
    let bytes = (1u64 << FEATURE_NAMES).to_ne_bytes();
    [0, 4].map(|at| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}

fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
