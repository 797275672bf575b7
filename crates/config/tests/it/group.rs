//! One limit over several ports.

use evenkeel_config::{RouterConfig, diff, parse_change};

const PORTS: &str = "[[port]]\nname = \"lan\"\ninterface = \"eth1\"\n\
                     [[port]]\nname = \"guest\"\ninterface = \"eth2\"\n\
                     [[port]]\nname = \"wan\"\ninterface = \"eth0\"\n";
const SHARED: &str = "[[link]]\nport = \"lan\"\nalso = [\"guest\"]\nrate = \"95Mbit/s\"\n";

fn parsed(rest: &str) -> Result<RouterConfig, String> {
    RouterConfig::parse(&format!("{PORTS}{rest}"), "router.toml")
        .map_err(|errors| errors.to_string())
}

#[test]
fn packets_of_a_port_go_through_the_link_that_names_it_and_files_are_written_so() {
    let config = parsed(SHARED).unwrap();
    assert_eq!([0, 1, 2].map(|port| config.link_of(port)), [0, 0, 2]);
    for text in [config.text(), config.short_text()] {
        assert_eq!(RouterConfig::parse(&text, "again").unwrap(), config, "{text}");
    }
    let alone = parsed("[[link]]\nport = \"lan\"\nrate = \"95Mbit/s\"\n").unwrap();
    assert_eq!(diff(&alone, &config), ["link lan: also: none becomes guest"]);
}

#[test]
fn groups_that_cannot_be_are_refused_with_the_line() {
    let second = "[[link]]\nport = \"wan\"\nrate = \"1Mbit/s\"\nalso = [\"guest\"]\n";
    let diverted = "[[link]]\nport = \"wan\"\nrate = \"1Mbit/s\"\n\
                    discipline = { kind = \"pdrr\" }\nadmission = { second_link = \"guest\" }\n";
    for (rest, wanted) in [
        (SHARED.replace("guest", "gest"), "router.toml:12: link.also: no port \"gest\"; did you"),
        (SHARED.replace("guest", "lan"), "router.toml:12: link.also: it is the link's own port"),
        (SHARED.replace("rate = \"95Mbit/s\"", ""), "router.toml:12: link.also: the link has no"),
        (format!("{SHARED}{second}"), "router.toml:17: link.also: port \"guest\" is there twice"),
        (
            format!("{SHARED}[[link]]\nport = \"guest\"\nrate = \"1Mbit/s\"\n"),
            "router.toml:12: link.also: port \"guest\" has a [[link]] of its own",
        ),
        (format!("{SHARED}{diverted}"), "link.admission.second_link: the packets of that port"),
    ] {
        let errors = parsed(&rest).unwrap_err();
        assert!(errors.contains(wanted), "{rest}: {errors}");
    }
}

#[test]
fn what_ports_share_is_not_taken_away_while_they_do() {
    let config = parsed(SHARED).unwrap();
    let change = |value| parse_change("rate", None, value, &["default"]).unwrap().on("lan");
    let error = config.changed(&change("none")).unwrap_err().to_string();
    assert!(error.contains("lan") && error.contains("several ports"), "{error}");
    assert!(config.changed(&change("10Mbit/s")).is_ok());
}
