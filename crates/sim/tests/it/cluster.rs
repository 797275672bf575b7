//! The reference of cluster scenarios, and those that are shipped.

use std::fs;
use std::path::Path;

use evenkeel_sim::cluster::ClusterScenario;

#[test]
fn the_reference_and_the_schema_are_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, generated) in [
        ("reference-cluster.md", ClusterScenario::reference_markdown()),
        ("schema/cluster.schema.json", ClusterScenario::schema()),
    ] {
        let path = docs.join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == generated,
            "{name} is out of date: UPDATE_DOCS=1 cargo test -p evenkeel-sim --test it cluster::"
        );
    }
}

#[test]
fn the_cluster_scenarios_that_are_shipped_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/stsdr");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if ClusterScenario::is_meant(&fs::read_to_string(&path).unwrap()) {
            let scenario = ClusterScenario::load(&path).unwrap();
            assert!(!scenario.expectations.is_empty(), "{}", scenario.name);
            count += 1;
        }
    }
    assert!(count >= 4);
}
