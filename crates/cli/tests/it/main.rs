//! Tests of the command that need no interfaces, in one program: it links once.

mod attacks;
mod bad_input;
mod control;
mod counters;
mod doctor;
mod init;
mod new;
mod pack;
mod report_and_sweep;
mod sim;
mod tutorial;
