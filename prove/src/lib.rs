//! A model of what several do at once, checked over all ways in which it can happen: nodes of a
//! cluster whose frames get lost, by `stateright`. The code that is checked is the router's own.

#![forbid(unsafe_code)]

pub mod node;
pub mod segment;
