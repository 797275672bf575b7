//! A change that is refused has changed nothing: neither the configuration nor a link.

use evenkeel_config::LinkChange;
use evenkeel_core::settings::{self, SettingError};
use evenkeel_core::{BitRate, Class, Nanos};
use evenkeel_router::CommandError;

use crate::common::{Bed, Udp};

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
    let without = settings::Change::new("rate", None::<BitRate>);
    // The admission of `p1` needs the rate of its second link.
    let error = bed.pipeline.change(now, &LinkChange::Wire(without).on("p2")).unwrap_err();
    assert!(error.to_string().contains("second link has no rate"), "{error}");
    assert_eq!(links(&mut bed), before, "the link");
    // If the configuration had changed, this would be refused, too.
    let faster = settings::Change::new("rate", Some(BitRate::from_mbps(20)));
    bed.pipeline.change(now, &LinkChange::Wire(faster).on("p1")).unwrap();
    assert_eq!(links(&mut bed)[1].0, Some(20_000_000));
    assert_eq!(links(&mut bed)[2], before[2]);
}

const CLASSES: &str = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"voice\"\n\
    match = [{ dscp = [46] }]\n[[link]]\nport = \"p2\"\nrate = \"1Mbit/s\"\n";

/// A burst of 40 packets of each class; how many of each were lost.
fn lost(bed: &mut Bed) -> [u64; 2] {
    let dropped = |bed: &mut Bed| {
        let snapshot = bed.snapshot();
        let link = snapshot.link("p2").unwrap();
        ["rest", "voice"].map(|class| link.class(class).unwrap().dropped.values().sum::<u64>())
    };
    let before = dropped(bed);
    for n in 0..80 {
        bed.send(
            0,
            2,
            Udp { payload: 500, dscp: if n % 2 == 0 { 0 } else { 46 }, ..Udp::default() },
        );
    }
    bed.pass(Nanos::from_millis(1));
    let after = dropped(bed);
    bed.pass(Nanos::from_secs(1));
    [after[0] - before[0], after[1] - before[1]]
}

/// `ctl set p2 limit rest 10`, as it is documented: of the class alone, where a discipline has
/// classes; one without refuses it, and nothing changes.
#[test]
fn the_limit_of_one_class_is_set_where_there_are_classes() {
    for kind in ["wfq-altq", "lct"] {
        let mut bed = Bed::new(3, &format!("{CLASSES}discipline = {{ kind = \"{kind}\" }}\n"));
        assert_eq!(lost(&mut bed), [0, 0], "{kind}: 50 in each");
        let now = bed.now;
        bed.pipeline
            .change(
                now,
                &LinkChange::Setting(settings::Change::of("limit", Class(0), 10_u32)).on("p2"),
            )
            .unwrap();
        let [rest, voice] = lost(&mut bed);
        assert!(rest >= 27 && voice == 0, "{kind}: {rest} and {voice} lost");
        let beyond = bed.pipeline.change(
            bed.now,
            &LinkChange::Setting(settings::Change::of("limit", Class(2), 10_u32)).on("p2"),
        );
        let Err(CommandError::Setting(error)) = beyond else { panic!("{beyond:?}") };
        assert_eq!(error, SettingError::NoSuchClass { class: Class(2), classes: 2 });
    }
    let mut bed = Bed::new(3, &format!("{CLASSES}discipline = {{ kind = \"fifo\" }}\n"));
    let refused = bed.pipeline.change(
        bed.now,
        &LinkChange::Setting(settings::Change::of("limit", Class(0), 10_u32)).on("p2"),
    );
    let Err(CommandError::Setting(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error, SettingError::NotOfAClass { key: "limit" });
    assert_eq!(lost(&mut bed), [0, 0], "nothing changed");
}
