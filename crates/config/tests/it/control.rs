//! `[link.control]`: defaults by class name, per-class limits, what is refused, and the live
//! switch.

use evenkeel_config::{LctControl, LinkChange, LinkControl, RouterConfig, diff, parse_change};
use evenkeel_core::measure::congestion::{Aggregate, Loss, Sensitivity};
use evenkeel_core::{Class, Fraction, Nanos};

const HEAD: &str = "[[port]]\nname = \"wan\"\ninterface = \"eth1\"\n[[class]]\nname = \
                    \"rest\"\n[[class]]\nname = \"voice\"\n\
                    [[link]]\nport = \"wan\"\ndiscipline = { kind = \"lct\", x_delay = { rest = \
                    \"3ms\" } }\n";

fn control(body: &str) -> LctControl {
    let config = RouterConfig::parse(&format!("{HEAD}{body}"), "r.toml").unwrap();
    config.links[0].control.as_ref().and_then(LinkControl::lct).cloned().unwrap()
}

fn error(body: &str) -> String {
    RouterConfig::parse(&format!("{HEAD}{body}"), "r.toml").unwrap_err().to_string()
}

#[test]
fn the_kind_is_enough() {
    let control = control("[link.control]\nkind = \"lct\"");
    assert!(control.on);
    let config = &control.config;
    // `voice` is known by name, `rest` is not.
    assert_eq!(config.classes, [Sensitivity::BULK, Sensitivity::VOICE]);
    // The table of keys and the core agree on the defaults.
    assert_eq!(*config, evenkeel_core::control::ControlConfig::new(config.classes.clone()));
}

#[test]
fn every_key_is_read() {
    let control = control(
        "control = { kind = \"lct\", on = false, interval = \"20ms\", gain = 0.5, smoothing = \
         0.125, hysteresis = 0.25, step = 0.0625, \
         x_min = \"1us\", x_max = \"5ms\", limits = false, aggregate = \"mean\", delay_weight = \
         0.75, \
         preset = { rest = \"video\" }, delay_normal = { voice = \"7ms\" }, loss_degraded = { \
         voice = 0.5 } }",
    );
    assert!(!control.on);
    let config = control.config;
    assert_eq!((config.interval, config.smoothing), (Nanos::from_millis(20), Fraction(8_192)));
    assert_eq!(
        (config.x_delay.gain, config.x_delay.hysteresis, config.x_delay.most),
        (Fraction(32_768), Fraction(16_384), Fraction(4_096))
    );
    assert_eq!((config.x_delay.min, config.x_delay.max), (Nanos(1_000), Some(Nanos(5_000_000))));
    assert!(!config.queue_limits.on);
    assert_eq!((config.aggregate, config.delay_weight), (Aggregate::Mean, Fraction(49_152)));
    assert_eq!(config.classes[0], Sensitivity::VIDEO);
    let voice = config.classes[1];
    assert_eq!((voice.delay.normal(), voice.delay.degraded()), (7_000_000, 50_000_000));
    assert_eq!(voice.loss.normal(), Sensitivity::VOICE.loss.normal());
    assert_eq!(voice.loss.degraded(), u64::from(Loss::of(1, 2).bits()));
}

#[test]
fn mistakes_say_what_would_be_valid() {
    for (body, wanted) in [
        (
            "control = { kind = \"lct\", gain = 0 }",
            "link.control.gain: 0 is out of range; valid: 0.001 to 1",
        ),
        ("control = { kind = \"lct\", intervall = \"1s\" }", "did you mean `interval`?"),
        ("control = { kind = \"lct\", x_min = \"1s\" }", "x_min is above x_max"),
        (
            "control = { kind = \"lct\", limit_min = 3, limit_max = 2 }",
            "limit_min is above limit_max",
        ),
        (
            "control = { kind = \"lct\", preset = { voise = \"video\" } }",
            "no class \"voise\"; did you mean \"voice\"?",
        ),
        (
            "control = { kind = \"lct\", delay_normal = { voice = \"80ms\" } }",
            "link.control.delay_normal: class voice: delay_normal must be below delay_degraded",
        ),
    ] {
        let error = error(body);
        assert!(
            error.contains(wanted) && error.starts_with("r.toml:11: "),
            "{error}\nlacks\n{wanted}"
        );
    }
    let text = HEAD.replace("\"lct\", x_delay = { rest = \"3ms\" }", "\"fifo\"");
    let text = format!("{text}control = {{ kind = \"lct\" }}");
    let error = RouterConfig::parse(&text, "r.toml").unwrap_err().to_string();
    assert!(error.contains("turns knobs that discipline \"fifo\" does not have"), "{error}");
}

#[test]
fn it_is_switched_by_on_and_off() {
    let change = |value| parse_change("control", None, value, &["rest", "voice"]);
    assert_eq!(change("on"), Ok(LinkChange::Control(true)));
    assert_eq!(change("off"), Ok(LinkChange::Control(false)));
    assert_eq!(change("maybe").unwrap_err().0, "control: expected on or off, found \"maybe\"");
    let parse = |body: &str| RouterConfig::parse(&format!("{HEAD}{body}"), "r.toml").unwrap();
    let (none, off) = (parse(""), parse("control = { kind = \"lct\", on = false }"));
    assert_eq!(diff(&none, &off), ["link wan: control: none becomes off"]);
    let slower = parse("control = { kind = \"lct\", on = false, interval = \"1s\" }");
    assert_eq!(diff(&off, &slower), ["link wan: control.interval: 25ms becomes 1s"]);
}

#[test]
fn it_is_built_for_lct_only_and_starts_from_its_knobs() {
    let config =
        RouterConfig::parse(&format!("{HEAD}control = {{ kind = \"lct\", on = false }}"), "r.toml")
            .unwrap();
    let link = &config.links[0];
    let meters = evenkeel_core::measure::Qostat::new(2);
    let control = link.control.as_ref().and_then(LinkControl::lct).unwrap();
    let built = control.build(Nanos(5), &link.discipline, &meters).unwrap();
    assert!(!built.is_enabled() && built.due() > Nanos(5));
    assert_eq!(built.x_delay(Class(0)), Nanos::from_millis(3));
    let fifo = evenkeel_config::parse_discipline("kind = \"fifo\"", &["rest", "voice"]).unwrap();
    assert!(control.build(Nanos(5), &fifo, &meters).is_none());
}

const LINE: &str = "[[port]]\nname = \"wan\"\ninterface = \"eth1\"\n[[port]]\nname = \"lan\"\n\
                    interface = \"eth0\"\n[[link]]\nport = \"wan\"\n";

#[test]
fn a_rate_follows_a_line_within_its_bounds() {
    let parse = |body: &str| {
        RouterConfig::parse(&format!("{LINE}{body}"), "r.toml").map_err(|error| error.to_string())
    };
    let whole = "rate = \"20Mbit/s\"\ncontrol = { kind = \"latency\", min = \
                 \"2Mbit/s\", max = \"50Mbit/s\"";
    let config = parse(&format!("{whole}, line = \"lan\", on = false }}")).unwrap();
    let control = config.links[0].control.as_ref().and_then(LinkControl::latency).unwrap();
    assert_eq!((control.law.min.0, control.law.max.0), (2_000_000, 50_000_000));
    assert_eq!(control.line.as_ref().map(|line| line.0.as_str()), Some("lan"));
    assert!(!control.on && config.links[0].control.as_ref().is_some_and(|c| !c.is_on()));
    // As it is written, it is read again.
    assert_eq!(RouterConfig::parse(&config.text(), "again.toml").unwrap(), config);
    let on = parse(&format!("{whole}, line = \"lan\" }}")).unwrap();
    assert_eq!(diff(&config, &on), ["link wan: control: off becomes on"]);
    let other = parse(&format!("{whole}, line = \"lan\", delay = \"30ms\" }}")).unwrap();
    assert_eq!(diff(&on, &other), ["link wan: control.delay: 15ms becomes 30ms"]);
    for (body, wanted) in [
        (whole.replace("rate = \"20Mbit/s\"\n", "") + " }", "no rate that could follow"),
        (whole.replace("min = \"2Mbit", "min = \"60Mbit") + " }", "min is above max"),
        (
            whole.replace("min = \"2Mbit", "min = \"21Mbit") + " }",
            "begins with 20Mbit/s: not within",
        ),
        (format!("{whole}, line = \"wam\" }}"), "no port \"wam\"; did you mean \"wan\"?"),
        (format!("{whole}, delay = \"0s\" }}"), "out of range; valid: 1ms to 1s"),
        (
            whole.replace(", max = \"50Mbit/s\"", "") + " }",
            "control.max: this required key is missing",
        ),
    ] {
        let error = parse(&body).unwrap_err();
        assert!(error.contains(wanted) && error.starts_with("r.toml:"), "{error}\nlacks\n{wanted}");
    }
}
