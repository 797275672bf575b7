//! A change that is refused has changed nothing: neither the configuration nor a link.

use evenkeel_core::BitRate;
use evenkeel_core::settings::Change;

use crate::common::Bed;

const LINKS: &str = "[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \"pfq\" \
                     }\n\
    [link.admission]\nsecond_link = \"p2\"\n[[link]]\nport = \"p2\"\nrate = \"1Mbit/s\"\n";

/// The rate and the discipline of each link.
fn links(bed: &mut Bed) -> Vec<(Option<u64>, String)> {
    let links = bed.snapshot().links;
    links.into_iter().map(|link| (link.rate_bps, link.discipline)).collect()
}

#[test]
fn a_rate_that_another_links_admission_refuses_stays_as_it_was() {
    let mut bed = Bed::new(3, LINKS);
    let (now, before) = (bed.now, links(&mut bed));
    let without = Change::new("rate", None::<BitRate>);
    // The admission of `p1` needs the rate of its second link.
    let error = bed.pipeline.set_wire(now, "p2", &without).unwrap_err();
    assert!(error.to_string().contains("second link has no rate"), "{error}");
    assert_eq!(links(&mut bed), before, "the link");
    // If the configuration had changed, this would be refused, too.
    let faster = Change::new("rate", Some(BitRate::from_mbps(20)));
    bed.pipeline.set_wire(now, "p1", &faster).unwrap();
    assert_eq!(links(&mut bed)[1].0, Some(20_000_000));
    assert_eq!(links(&mut bed)[2], before[2]);
}
