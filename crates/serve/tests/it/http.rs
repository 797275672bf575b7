//! What is answered at which path, and what changes it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use evenkeel_control::{JournalLine, Version};
use evenkeel_serve::{Hook, Options, ServeError, Server};
use serde_json::Value;

use crate::bed::{Setup, ask, connect, event, get, json, options, status, until, watched};

#[test]
fn state_windows_metrics_and_the_page_are_served() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let at = server.address();
    until("windows come", || {
        let windows = json(at, "/api/v1/routers/edge/windows?last=2");
        windows["windows"].as_array().unwrap().len() == 2
    });
    let told = status(&server);
    assert_eq!((told["router"].as_str(), told["name"].as_str()), (Some("edge"), Some("r1")));
    assert_eq!((told["status"].as_str(), told["restarts"].as_u64()), (Some("answers"), Some(0)));
    assert_eq!(told["version"], Version::own().program);
    assert_eq!(json(at, "/api/v1/routers/edge/state")["links"][0]["port"], "wan");
    let window = json(at, "/api/v1/routers/edge/windows?last=1")["windows"][0].clone();
    assert_eq!(window["links"][0]["sent_bps"], 8_000_000.0);
    assert_eq!(window["links"][0]["classes"][0]["dropped_pps"], 1.0);
    assert!(json(at, "/api/v1/routers/edge/marks")["marks"].is_array());
    let (code, metrics) = get(at, "/metrics");
    assert_eq!(code, 200);
    let line = r#"evenkeel_link_class_sent_packets_total{router="edge",link="wan",class="rest"}"#;
    assert!(metrics.contains(line) && metrics.ends_with("# EOF\n"), "{metrics}");
    let (code, page) = get(at, "/");
    assert!(code == 200 && page.contains("<title>Evenkeel</title>"));
    for path in [
        "/page.js",
        "/lists.js",
        "/more.js",
        "/page.css",
        "/uPlot.js",
        "/uPlot.css",
        "/uPlot.LICENSE",
    ] {
        assert!(page.contains(path) && get(at, path).0 == 200, "{path}");
    }
}

/// The description has all paths and no other; what it requires of windows is there.
#[test]
fn the_description_of_the_api_is_true() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let at = server.address();
    let api = json(at, "/api/v1/openapi.json");
    until("a window comes", || {
        !json(at, "/api/v1/routers/edge/windows")["windows"].as_array().unwrap().is_empty()
    });
    let paths = api["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 13);
    let read = paths.iter().filter(|(_, methods)| methods.get("get").is_some());
    for (path, _) in read.filter(|(path, _)| !path.ends_with("/events")) {
        let query = match path.rsplit_once('/').map_or("", |(_, name)| name) {
            "history" => "?from_ms=0",
            "explain" => "?flow=10.0.0.1:5-%3E10.0.0.2:6/udp",
            _ => "",
        };
        let path = format!("{}{query}", path.replace("{router}", "edge"));
        assert_eq!(get(at, &path).0, 200, "{path}");
    }
    let schemas = &api["components"]["schemas"];
    // Ann sends more than carol, and waits for her site.
    let told = json(at, "/api/v1/routers/edge/subscribers?top=2");
    let people = told["subscribers"].as_array().unwrap();
    let limits: Vec<_> = people.iter().map(|one| (&one["name"], &one["limit"])).collect();
    assert_eq!(limits, [(&"ann".into(), &"north".into()), (&"carol".into(), &Value::Null)]);
    for (field, _) in people[0].as_object().unwrap() {
        assert!(schemas["subscriber"]["properties"].get(field).is_some(), "{field}");
    }
    let window = &json(at, "/api/v1/routers/edge/windows")["windows"][0];
    let link = &window["links"][0];
    let told =
        [("window", window), ("link", link), ("rates", link), ("rates", &link["classes"][0])];
    for (name, value) in told {
        for field in schemas[name]["required"].as_array().unwrap() {
            assert!(value.get(field.as_str().unwrap()).is_some(), "{name}: {field}");
        }
    }
    for (field, _) in window.as_object().unwrap() {
        assert!(schemas["window"]["properties"].get(field).is_some(), "{field} is not described");
    }
    for (field, _) in link.as_object().unwrap() {
        let known =
            ["link", "rates"].iter().any(|of| schemas[of]["properties"].get(field).is_some());
        assert!(known, "{field} is not described");
    }
}

#[test]
fn nothing_can_be_changed_and_strangers_names_are_refused() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let at = server.address();
    for path in ["/", "/metrics", "/api/v1/routers", "/api/v1/routers/edge/state", "/api/v1/events"]
    {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            assert_eq!(ask(at, method, path, "localhost").0, 405, "{method} {path}");
        }
        assert_eq!(ask(at, "GET", path, "attacker.example").0, 421, "{path}");
    }
    assert_eq!(ask(at, "GET", "/metrics", "router.lan").0, 200);
    let (_, reply) = ask(at, "GET", "/", "localhost");
    assert!(reply.contains("content-security-policy: default-src 'none'"), "{reply}");
    assert_eq!(*setup.target.changes.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn a_router_that_restarts_is_found_again_and_the_stream_tells_it() {
    let setup = Setup::new();
    let router = setup.router();
    let server = setup.serve();
    let mut stream = connect(server.address());
    let head = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream);
    assert_eq!(event(&mut lines, "window")["router"], "edge");
    router.stop();
    let silent = event(&mut lines, "status");
    assert_eq!(
        (silent["router"].as_str(), silent["status"].as_str()),
        (Some("edge"), Some("silent"))
    );
    assert!(status(&server)["error"].is_string());
    let (_, metrics) = get(server.address(), "/metrics");
    assert!(metrics.contains("evenkeel_up{router=\"edge\"} 0.0"), "{metrics}");
    assert!(!metrics.contains("evenkeel_link_class_sent"), "what is old is not told as new");
    *setup.target.asked.lock().unwrap() = 0;
    let _router = setup.router();
    assert_eq!(event(&mut lines, "status")["status"], "answers");
    assert!(event(&mut lines, "mark")["text"].as_str().unwrap().contains("started anew"));
    until("it is counted", || status(&server)["restarts"] == 1);
}

/// A port goes down and comes back: the alarm is raised and over, in metrics, in the stream, in the
/// list, in the past, and for the operator's own command.
#[test]
fn an_alarm_is_told_everywhere_when_it_is_raised_and_when_it_is_over() {
    let setup = Setup::new();
    let _router = setup.router();
    let told = setup.folder.path().join("told");
    let command = format!(
        "echo $EVENKEEL_ROUTER $EVENKEEL_ALARM $EVENKEEL_ABOUT $EVENKEEL_STATE >> {}",
        told.display()
    );
    let hook = Some(Hook::start(&command).unwrap());
    let server = Server::start(Options { hook, ..setup.options() }).unwrap();
    let at = server.address();
    let mut stream = connect(at);
    stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream);
    event(&mut lines, "window");
    let metric = |value| {
        let line =
            format!(r#"evenkeel_alarm{{router="edge",alarm="port_down",about="wan"}} {value}.0"#);
        get(at, "/metrics").1.contains(&line)
    };
    assert!(!metric(0) && !metric(1));
    *setup.target.down.lock().unwrap() = true;
    let raised = event(&mut lines, "alarm");
    assert_eq!(
        (raised["alarm"].as_str(), raised["raised"].as_bool()),
        (Some("port_down"), Some(true))
    );
    assert!(metric(1));
    *setup.target.down.lock().unwrap() = false;
    let over = event(&mut lines, "alarm");
    assert_eq!((over["about"].as_str(), over["raised"].as_bool()), (Some("wan"), Some(false)));
    assert!(metric(0));
    let list = json(at, "/api/v1/routers/edge/alarms");
    assert_eq!(list["alarms"][0]["raised"], false);
    until("the hook has run twice", || {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        text == "edge port_down wan raised\nedge port_down wan cleared\n"
    });
    let kinds = |at| -> Vec<String> {
        let marks = json(at, "/api/v1/routers/edge/marks");
        let marks = marks["marks"].as_array().unwrap().iter();
        marks.filter_map(|mark| mark["kind"].as_str()).map(str::to_owned).collect()
    };
    let before = kinds(at);
    assert!(before.contains(&"raised".to_owned()) && before.contains(&"cleared".to_owned()));
    // It is there after a restart, too.
    drop(server);
    let again = setup.serve();
    assert_eq!(kinds(again.address())[..before.len()], before);
}

#[test]
fn the_past_is_there_after_a_restart_and_a_file_that_cannot_be_had_is_said() {
    let setup = Setup::new();
    let _router = setup.router();
    let windows = |at, path: &str| {
        let told = json(at, &format!("/api/v1/routers/edge/{path}"));
        told["windows"].as_array().unwrap().len()
    };
    let server = setup.serve();
    until("windows come", || windows(server.address(), "windows") >= 5);
    let twice = Server::start(setup.options()).unwrap_err();
    assert!(twice.to_string().contains("written by another process"), "{twice}");
    drop(server);
    let server = setup.serve();
    let at = server.address();
    assert!(windows(at, "windows") >= 5);
    assert!(windows(at, "history?from_ms=0") >= 5);
    assert!(windows(at, "history?from_ms=0&points=2") <= 2);
    assert_eq!(windows(at, "history?from_ms=0&to_ms=1000"), 0);
    assert_eq!(get(at, "/api/v1/routers/edge/history?from_ms=-1").0, 400);
    let without = Server::start(options(vec![watched("edge", &setup.socket())])).unwrap();
    let (code, why) = get(without.address(), "/api/v1/routers/edge/history?from_ms=0");
    assert!(code == 404 && why.contains("--history"), "{code} {why}");
}

/// What the router says itself is told as it says it: with who did it, and once.
#[test]
fn the_routers_own_words_are_told_once() {
    let setup = Setup::new();
    let _router = setup.router();
    let line = |number, text: &str| JournalLine {
        number,
        time_ms: 1_000 + number,
        level: "info".into(),
        text: text.into(),
    };
    let first = line(1, "link wan: 5 becomes 8; by root (uid 0, process 7)");
    *setup.target.journal.lock().unwrap() = Some(vec![first]);
    let server = setup.serve();
    let texts = |server: &Server| -> Vec<String> {
        let marks = json(server.address(), "/api/v1/routers/edge/marks");
        let marks = marks["marks"].as_array().unwrap().iter();
        marks.map(|mark| mark["text"].as_str().unwrap().to_owned()).collect()
    };
    until("it is told", || texts(&server).len() == 1);
    setup.target.journal.lock().unwrap().as_mut().unwrap().push(line(2, "and again"));
    until("it is told", || texts(&server).len() == 2);
    drop(server);
    let server = setup.serve();
    until("windows come", || status(&server)["status"] == "answers");
    thread::sleep(Duration::from_millis(500));
    assert_eq!(texts(&server).len(), 2, "{:?}", texts(&server));
}

#[test]
fn routers_of_other_versions_are_refused_with_both_versions() {
    let setup = Setup::new();
    let socket = UnixListener::bind(setup.socket()).unwrap();
    thread::spawn(move || {
        for stream in socket.incoming() {
            let Ok(stream) = stream else { return };
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let _ = (&stream).write_all(b"{\"version\":{\"program\":\"9.8.7\",\"protocol\":77}}\n");
        }
    });
    let server = setup.serve();
    let error = || status(&server)["error"].as_str().unwrap_or_default().to_owned();
    until("it is refused", || !error().is_empty());
    let own = Version::own().to_string();
    assert!(error().contains("control protocol 77 (evenkeel 9.8.7)") && error().contains(&own));
    assert_eq!(get(server.address(), "/api/v1/routers/edge/state").0, 503);
}

#[test]
fn names_that_are_taken_or_cannot_be_in_a_path_are_refused() {
    let socket = Path::new("/nowhere");
    let twice = options(vec![watched("a", socket), watched("a", socket)]);
    assert!(matches!(Server::start(twice), Err(ServeError::Twice(name)) if name == "a"));
    for name in ["", "a/b", "a b", "é", &"x".repeat(65)] {
        let bad = options(vec![watched(name, socket)]);
        assert!(matches!(Server::start(bad), Err(ServeError::BadName(_))), "{name}");
    }
}

/// Every metric that the dashboard and the alerts ask for is one that `/metrics` tells.
#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_there_are() {
    let setup = Setup::new();
    *setup.target.down.lock().unwrap() = true;
    let _router = setup.router();
    let server = setup.serve();
    let mut metrics = String::new();
    until("the router is told", || {
        metrics = get(server.address(), "/metrics").1;
        metrics.contains("evenkeel_link_class_sent_bytes_total{")
            && metrics.contains("evenkeel_alarm{")
    });
    let known: BTreeSet<&str> = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let mut asked = BTreeSet::new();
    for file in ["grafana-dashboard.json", "prometheus-alerts.yml"] {
        let text = std::fs::read_to_string(packaging.join(file)).unwrap();
        if file.ends_with(".json") {
            serde_json::from_str::<Value>(&text).unwrap();
        }
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        for (at, _) in text.match_indices("evenkeel_") {
            let name: String = text[at..].chars().take_while(|c| is_name(*c)).collect();
            assert!(known.contains(name.as_str()), "{file}: {name} is no metric");
            asked.insert(name);
        }
    }
    assert!(asked.len() >= 12, "{asked:?}");
}
