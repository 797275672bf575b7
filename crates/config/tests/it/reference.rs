//! The reference in `docs/` is what the tables of keys say, and the example file is read as its
//! comments say.

use std::path::{Path, PathBuf};

use evenkeel_config::{DisciplineConfig, RouterConfig, diff, reference_markdown, tables};
use evenkeel_core::{BitRate, Nanos, Weight};

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file)
}

#[test]
fn the_reference_is_up_to_date() {
    let path = docs("reference-router.md");
    let generated = reference_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is out of date: UPDATE_DOCS=1 cargo test -p evenkeel-config",
        path.display()
    );
}

#[test]
fn the_json_schema_is_up_to_date_reference() {
    let path = docs("schema/router.schema.json");
    let generated = evenkeel_config::router_schema();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is out of date: UPDATE_DOCS=1 cargo test -p evenkeel-config reference",
        path.display()
    );
}

#[test]
fn every_key_is_documented() {
    let page = reference_markdown();
    for section in tables::all() {
        for key in section.keys() {
            assert!(page.contains(&format!("| `{}` |", key.name)), "{}", key.name);
            assert!(key.doc.ends_with('.'), "{}: {}", key.name, key.doc);
        }
    }
}

#[test]
fn the_example_says_what_its_comments_say() {
    let config = RouterConfig::load(&docs("examples/router.toml"))
        .unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.class_names(), ["rest", "voice", "bulk"]);
    let wan = config.link("wan").unwrap();
    assert_eq!(wan.core.rate, Some(BitRate::from_mbps(95)));
    let DisciplineConfig::Lct(lct) = &wan.discipline else { panic!("{wan:?}") };
    let delays = [Nanos::from_micros(100), Nanos::ZERO, Nanos::from_millis(2)];
    assert!(lct.x_delay.first(3).eq(delays));
    let DisciplineConfig::WfqAltq(wfq) = &config.link("lan").unwrap().discipline else {
        panic!("{config:?}")
    };
    assert!(wfq.weight.first(3).eq([100, 1000, 30].map(Weight)));
    assert!(diff(&config, &config).is_empty());
}

#[test]
fn the_example_shows_every_key() {
    let files = ["router", "forwarder", "balancer", "membership"]
        .map(|name| format!("examples/{name}.toml"));
    let text: String =
        files.iter().map(|file| std::fs::read_to_string(docs(file)).unwrap()).collect();
    for file in &files {
        RouterConfig::load(&docs(file)).unwrap_or_else(|errors| panic!("{errors}"));
    }
    for section in tables::all() {
        for key in section.keys() {
            let shown = text.contains(&format!("{} = ", key.name))
                || text.contains(&format!("[{}]", key.name))
                || text.contains(&format!("[[cluster.{}]]", key.name))
                || text.contains(&format!("[[balancer.{}]]", key.name));
            // need another `select` and `drop`
            // and of what the kernel has, no router can be an example.
            let elsewhere = ["queues", "high_water", "command"].contains(&key.name);
            assert!(
                shown || elsewhere || text.contains(&format!("[link.{}]", key.name)),
                "{}",
                key.name
            );
        }
    }
}
