//! Admission with any set of mechanisms under random operations.
#![no_main]

use evenkeel_fuzz::admit::ops::{OP_BYTES, Subject, config};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: ([u8; 8], Vec<[u8; OP_BYTES]>)| {
    let mut subject = Subject::new(config(case.0));
    for operation in case.1 {
        subject.step(operation);
    }
});
