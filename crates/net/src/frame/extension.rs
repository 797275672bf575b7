//! IPv6 extension headers (RFC 8200, 4).

use super::protocol::FRAGMENT;
use super::{Fragment, MAX_EXTENSION_HEADERS, be16};
use evenkeel_core::Reason;

pub(super) const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// What stands behind the chain.
pub(super) struct Upper {
    pub(super) protocol: u8,
    /// From the end of the fixed header.
    pub(super) offset: usize,
    pub(super) fragment: Fragment,
}

#[inline]
pub(super) fn is_extension(next: u8) -> bool {
    matches!(
        next,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION_OPTIONS
            | MOBILITY
            | HOST_IDENTITY
            | SHIM6
    )
}

/// Follows the chain that starts at the first byte of `payload` with a header of type `next`.
#[inline(never)] // keeps the common case, no extension headers, small
pub(super) fn walk(mut next: u8, payload: &[u8]) -> Result<Upper, Reason> {
    let mut offset = 0;
    let mut fragment = Fragment::No;
    for position in 0..=MAX_EXTENSION_HEADERS {
        if !is_extension(next) {
            return Ok(Upper { protocol: next, offset, fragment });
        }
        // RFC 8200, 4.1: hop-by-hop options stand right behind the fixed header or nowhere.
        if next == HOP_BY_HOP && position > 0 {
            return Err(Reason::BadExtensionHeader);
        }
        let Some(&[following, length, high, low]) =
            payload.get(offset..).and_then(<[u8]>::first_chunk::<4>)
        else {
            return Err(Reason::BadExtensionHeader);
        };
        let size = match next {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        offset += size;
        if offset > payload.len() {
            return Err(Reason::BadExtensionHeader);
        }
        if next == FRAGMENT {
            let word = be16(high, low);
            if word >> 3 != 0 {
                // What follows is payload: the rest of the chain went with the first fragment.
                return Ok(Upper { protocol: following, offset, fragment: Fragment::Later });
            }
            // An "atomic" fragment (offset 0, nothing more) is whole: RFC 6946.
            if word & 1 != 0 {
                fragment = Fragment::First;
            }
        }
        next = following;
    }
    Err(Reason::BadExtensionHeader)
}
