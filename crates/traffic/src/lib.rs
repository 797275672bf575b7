//! Traffic sources as state machines: when to send what, without sockets.
