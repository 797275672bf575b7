//! What the lab and the simulator share.
#![forbid(unsafe_code)]
