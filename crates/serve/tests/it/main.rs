//! `evenkeel serve` over real sockets, with a stand-in for the router.

mod bed;
mod changes;
mod hostile;
mod http;
mod lists;
