//! Requests of the control protocol, and the texts in them that are read further.
#![no_main]

use evenkeel_config::parse_change;
use evenkeel_control::Request;
use evenkeel_core::FlowKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(request) = serde_json::from_slice::<Request>(bytes) else { return };
    let text = serde_json::to_vec(&request).expect("it came from JSON");
    serde_json::from_slice::<Request>(&text).expect("what we write we read");
    match request {
        Request::Set { knob, class, value, .. } => {
            let _ = parse_change(&knob, class.as_deref(), &value, &["rest", "some"]);
        }
        Request::Explain { flow, .. } => {
            if let Ok(key) = flow.parse::<FlowKey>() {
                assert_eq!(key.to_string().parse::<FlowKey>().as_ref(), Ok(&key));
            }
        }
        _ => {}
    }
});
