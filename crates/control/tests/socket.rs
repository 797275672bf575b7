//! Server and client over a real socket, with a stand-in for the router.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_config::{Change, LinkChange, RouterConfig};
use evenkeel_control::server::{IDLE, MAX_CLIENTS};
use evenkeel_control::{
    Client, ClientError, Request, Server, ServerError, Target, Version, script,
};
use evenkeel_router::snapshot::{FlowSnapshot, LinkSnapshot, Snapshot};
use evenkeel_router::{Command, CommandError, Reply};

const CONFIG: &str = r#"
[[port]]
name = "wan"
interface = "eth0"
[[class]]
name = "rest"
[[class]]
name = "bulk"
[[link]]
port = "wan"
rate = "100Mbit/s"
[link.discipline]
kind = "lct"
"#;

/// Notes what it was asked; knows one link, `wan`.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Target for Recorder {
    fn send(&self, command: Command) -> Result<Reply, CommandError> {
        let (link, text) = match command {
            Command::Show => {
                return Ok(Reply::Snapshot(Box::new(Snapshot {
                    router: "r1".to_owned(),
                    links: vec![LinkSnapshot { port: "wan".to_owned(), ..LinkSnapshot::default() }],
                    ..Snapshot::default()
                })));
            }
            Command::Explain { flow, .. } => {
                return Ok(Reply::Text(format!("nothing happened to {flow}\n")));
            }
            Command::Flows { top, .. } => {
                return Ok(Reply::Flows(vec![FlowSnapshot::default(); top]));
            }
            Command::Nodes(_) => return Ok(Reply::Nodes(Vec::new())),
            // Nothing passes here that could be watched.
            Command::Busiest { .. } | Command::Watch(_) | Command::Unwatch => {
                return Ok(Reply::Done);
            }
            Command::Sightings { .. } => return Ok(Reply::Done),
            Command::Change(Change::Link(link, change)) => (link, of_link(&change)),
            Command::Change(Change::FairDrop(change)) => {
                ("wan".to_owned(), format!("fairdrop {} {}", change.key, change.value.plain(&[])))
            }
            Command::Change(Change::Forwarder { id, state }) => {
                ("wan".to_owned(), format!("forwarder {id} {}", state.name()))
            }
            Command::Reload(config) => {
                ("wan".to_owned(), format!("reload {:?}", config.class_names()))
            }
        };
        if link != "wan" {
            return Err(CommandError::NoSuchLink { name: link, known: vec!["wan".to_owned()] });
        }
        self.0.lock().unwrap().push(text);
        Ok(Reply::Done)
    }
}

fn of_link(change: &LinkChange) -> String {
    match change {
        LinkChange::Setting(change) | LinkChange::Wire(change) => {
            format!("{} {:?} {}", change.key, change.class, change.value.plain(&[]))
        }
        LinkChange::Admission(change) => format!("{} {}", change.key, change.value.plain(&[])),
        LinkChange::Control(on) => format!("control {on}"),
        LinkChange::WholeAdmission(admission) => format!("admission {}", admission.is_some()),
        LinkChange::Discipline(discipline) => discipline.name().to_owned(),
    }
}

struct Setup {
    folder: tempfile::TempDir,
    recorder: Arc<Recorder>,
    config: RouterConfig,
}

impl Setup {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            recorder: Arc::default(),
            config: RouterConfig::parse(CONFIG, "router.toml").unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("sub/r1.sock")
    }

    fn start(&self) -> Server {
        Server::start(&self.path(), &self.config, None, Arc::clone(&self.recorder)).unwrap()
    }

    fn client(&self) -> Client {
        Client::connect(&self.path()).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.recorder.0.lock().unwrap())
    }
}

#[test]
fn show_and_changes_reach_the_router() {
    let setup = Setup::new();
    let _server = setup.start();
    let mut client = setup.client();
    assert_eq!(client.show().unwrap().router, "r1");
    client.set("wan", "x_delay", Some("bulk"), "200us").unwrap();
    client.set("wan", "module2", None, "false").unwrap();
    client.send(&Request::Rate { link: "wan".into(), value: "50Mbit/s".into() }).unwrap();
    client.send(&Request::Ring { link: "wan".into(), slots: 4, refill: "any".into() }).unwrap();
    client.send(&Request::Discipline { link: "wan".into(), value: "fifo".into() }).unwrap();
    client.send(&Request::Fairdrop { key: "on".into(), value: "true".into() }).unwrap();
    let asked = setup.asked();
    assert_eq!(asked[0], "x_delay Some(Class(1)) 200us");
    assert_eq!(asked[1], "module2 None false");
    assert_eq!(asked[2], "rate None 50Mbit/s");
    assert!(asked[3].contains("slots = 4"), "{}", asked[3]);
    assert_eq!(asked[4..], ["fifo", "fairdrop on true"]);
}

#[test]
fn admissions_are_changed_and_asked() {
    let setup = Setup::new();
    let _server = setup.start();
    let mut client = setup.client();
    client.set("wan", "admission", None, "on").unwrap();
    client.set("wan", "admission.max_accept_delay", None, "2s").unwrap();
    client.set("wan", "admission", None, "off").unwrap();
    assert_eq!(setup.asked(), ["admission true", "max_accept_delay 2s", "admission false"]);
    let flow = "10.0.0.1:5000->10.0.1.1:80/udp";
    assert_eq!(client.explain(flow, None).unwrap(), format!("nothing happened to {flow}\n"));
    let error = client.explain("10.0.0.1->10.0.1.1", Some("wan")).unwrap_err();
    assert!(error.to_string().contains("a flow is written"), "{error}");
    assert_eq!(client.flows(3, Some("wan")).unwrap().len(), 3);
}

#[test]
fn wrong_values_are_refused_and_reach_nobody() {
    let setup = Setup::new();
    let _server = setup.start();
    let mut client = setup.client();
    for (knob, class, value, hint) in [
        ("x_delay", Some("bulk"), "200", "us"),
        ("x_delay", Some("bulk"), "100s", "range"),
        ("x_delay", Some("blk"), "200us", "bulk"),
        ("x_dely", Some("bulk"), "200us", "x_delay"),
        ("ring", None, "{ slots = 0 }", "1"),
        ("admission.min_fair_rate", None, "1.5", "0 to 1"),
        ("admission.max_acept_delay", None, "2s", "max_accept_delay"),
        ("admission.max_accept_delay", None, "1ms", "10ms"),
        ("admission.flushing", None, "efn", "efm"),
        ("admission.eccm", Some("bulk"), "true", "whole link"),
    ] {
        let error = client.set("wan", knob, class, value).unwrap_err();
        assert!(matches!(error, ClientError::Refused(_)), "{error}");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(hint), "{knob} {value}: {error}");
    }
    assert_eq!(setup.asked(), [""; 0]);
    let error = client.set("lan", "module2", None, "true").unwrap_err();
    assert_eq!(error.to_string(), "no link \"lan\": links are wan");
    // The connection is still good.
    assert_eq!(client.show().unwrap().router, "r1");
}

#[test]
fn a_reload_brings_its_own_class_names() {
    let setup = Setup::new();
    let _server = setup.start();
    let mut client = setup.client();
    let reload = |text: &str| Request::Reload {
        text: text.to_owned(),
        file: "new.toml".to_owned(),
        confirm_ms: None,
        yes: false,
    };
    let error = client.send(&reload("[[port]]\nname = 1")).unwrap_err().to_string();
    assert!(error.lines().any(|line| line.starts_with("new.toml:2: port.name: ")), "{error}");
    client.send(&reload(&CONFIG.replace("bulk", "slow"))).unwrap();
    assert_eq!(setup.asked(), ["reload [\"rest\", \"slow\"]"]);
    client.set("wan", "x_delay", Some("slow"), "1ms").unwrap();
    assert!(client.set("wan", "x_delay", Some("bulk"), "1ms").is_err());
}

#[test]
fn a_change_that_nobody_confirms_is_undone_and_a_confirmed_one_stays() {
    let setup = Setup::new();
    let _server = setup.start();
    let mut client = setup.client();
    let reload = |name: &str, confirm_ms: Option<u64>| Request::Reload {
        text: CONFIG.replace("bulk", name),
        file: "new.toml".to_owned(),
        confirm_ms,
        yes: false,
    };
    let error = client.send(&reload("long", Some(3_600_001))).unwrap_err().to_string();
    assert!(error.contains("3600 s") && setup.asked().is_empty(), "{error}");
    client.send(&reload("one", Some(60_000))).unwrap();
    let error = client.send(&reload("two", None)).unwrap_err().to_string();
    assert!(error.contains("waits to be confirmed"), "{error}");
    client.send(&Request::Confirm).unwrap();
    assert!(client.send(&Request::Confirm).is_err());
    // Undone is what the file before said, and with its classes.
    client.send(&reload("two", Some(1))).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(20);
    let mut asked = Vec::new();
    while asked.len() < 3 && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        asked.extend(setup.asked());
    }
    let name = |name: &str| format!("reload [\"rest\", \"{name}\"]");
    assert_eq!(asked, [name("one"), name("two"), name("one")]);
    assert!(client.send(&Request::Confirm).unwrap_err().to_string().contains("no change waits"));
    client.set("wan", "x_delay", Some("one"), "1ms").unwrap();
    // A stop undoes nothing.
    client.send(&reload("three", Some(50))).unwrap();
}

#[test]
fn the_socket_is_private_and_removed_on_stop() {
    let setup = Setup::new();
    let server = setup.start();
    let mode = fs::metadata(setup.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut idle = setup.client();
    server.stop();
    assert!(!setup.path().exists());
    assert!(matches!(idle.show(), Err(ClientError::Io { .. })));
    assert!(matches!(Client::connect(&setup.path()), Err(ClientError::Connect { .. })));
}

#[test]
fn a_socket_left_by_a_killed_router_is_replaced_and_a_living_one_is_not() {
    let setup = Setup::new();
    fs::create_dir_all(setup.path().parent().unwrap()).unwrap();
    drop(UnixListener::bind(setup.path()).unwrap());
    assert!(setup.path().exists());
    let server = setup.start();
    assert_eq!(setup.client().show().unwrap().router, "r1");
    let second = Server::start(&setup.path(), &setup.config, None, Arc::clone(&setup.recorder));
    assert!(matches!(second, Err(ServerError::InUse(_))));
    // The refused start must not have taken the socket away.
    assert_eq!(setup.client().show().unwrap().router, "r1");
    server.stop();
    fs::write(setup.path(), "mine").unwrap();
    let third = Server::start(&setup.path(), &setup.config, None, Arc::clone(&setup.recorder));
    assert!(matches!(third, Err(ServerError::NotASocket(_))));
    assert_eq!(fs::read(setup.path()).unwrap(), b"mine");
}

#[test]
fn garbage_is_answered_and_endless_lines_are_cut_off() {
    let setup = Setup::new();
    let _server = setup.start();
    let stream = UnixStream::connect(setup.path()).unwrap();
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    for garbage in ["{", "[1]", "\u{fffd}", "{\"cmd\":\"dance\"}", "null"] {
        (&stream).write_all(format!("{garbage}\n").as_bytes()).unwrap();
        line.clear();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("{\"error\":\"not a request: "), "{garbage}: {line}");
    }
    (&stream).write_all(b"\n  \n{\"cmd\":\"show\"}\n").unwrap();
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"ok\":{"), "{line}");
    // The server stops reading after a megabyte: the write may break off.
    let _ = (&stream).write_all(&vec![b'x'; 3 << 20]);
    line.clear();
    let _ = reader.read_line(&mut line);
    assert!(line.is_empty() || line.contains("longer than"), "{line}");
    assert_eq!(setup.client().show().unwrap().router, "r1");
}

#[test]
fn clients_are_bounded_and_places_become_free() {
    let setup = Setup::new();
    let _server = setup.start();
    let mut clients: Vec<Client> = (0..MAX_CLIENTS).map(|_| setup.client()).collect();
    for client in &mut clients {
        client.show().unwrap();
    }
    let refused = setup.client().show();
    assert!(refused.is_err());
    clients.truncate(1);
    let mut answered = false;
    for _ in 0..200 {
        answered = setup.client().show().is_ok();
        if answered {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(answered);
    clients[0].show().unwrap();
}

/// They kept everybody out, `ctl confirm` and SIGHUP included, for as long as they lived.
#[test]
fn forgotten_connections_give_their_places_to_others() {
    let setup = Setup::new();
    let _server = setup.start();
    let mut clients: Vec<Client> = (0..MAX_CLIENTS).map(|_| setup.client()).collect();
    for client in &mut clients {
        client.show().unwrap();
    }
    assert!(setup.client().show().is_err(), "all of them have just asked");
    std::thread::sleep(IDLE);
    clients[0].show().unwrap();
    let mut others: Vec<Client> = (0..4).map(|_| setup.client()).collect();
    for client in &mut others {
        client.show().unwrap();
    }
    clients[0].show().unwrap();
    let gone = clients.iter_mut().map(|client| client.show()).filter(Result::is_err).count();
    assert_eq!(gone, 4);
}

#[test]
fn a_script_goes_on_after_a_refusal() {
    let setup = Setup::new();
    let _server = setup.start();
    let entries = script::parse(
        "20ms set wan x_delay bulk 1ms\n0s set wan module2 maybe\n40ms rate wan 1Mbit/s",
        "steps",
    )
    .unwrap();
    let mut lines = Vec::new();
    let refused =
        script::run(&mut setup.client(), &entries, |applied| lines.push(applied.to_string()))
            .unwrap();
    assert_eq!(refused, 1);
    assert_eq!(lines.len(), 3);
    assert!(lines[0].contains("refused (line 2)"), "{}", lines[0]);
    assert!(lines[1].ends_with("set wan x_delay bulk 1ms"), "{}", lines[1]);
    assert_eq!(setup.asked(), ["x_delay Some(Class(1)) 1ms", "rate None 1Mbit/s"]);
}

/// Refuses the second file that it gets twice, as a router does while an interface is missing.
#[derive(Default)]
struct Missing {
    files: Mutex<Vec<bool>>,
    undone: Mutex<Vec<bool>>,
}

impl Target for Missing {
    fn send(&self, command: Command) -> Result<Reply, CommandError> {
        if let Command::Reload(config) = command {
            let mut files = self.files.lock().unwrap();
            let refused = (1..3).contains(&files.len());
            files.push(config.classes.len() == 2);
            if refused {
                return Err(CommandError::NoAnswer);
            }
        }
        Ok(Reply::Done)
    }

    fn undone(&self, result: Result<(), CommandError>) {
        self.undone.lock().unwrap().push(result.is_ok());
    }
}

/// It was tried once, and then the router stayed for ever as nobody had wanted it.
#[test]
fn a_change_that_cannot_be_undone_now_is_undone_as_soon_as_it_can_be() {
    let setup = Setup::new();
    let target = Arc::new(Missing::default());
    let _server = Server::start(&setup.path(), &setup.config, None, Arc::clone(&target)).unwrap();
    let text = CONFIG.replace("[[class]]\nname = \"bulk\"\n", "");
    let reload =
        Request::Reload { text, file: "new.toml".into(), confirm_ms: Some(20), yes: false };
    setup.client().send(&reload).unwrap();
    for _ in 0..500 {
        if target.undone.lock().unwrap().last() == Some(&true) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(*target.undone.lock().unwrap(), [false, true], "said once, and when it was done");
    assert_eq!(*target.files.lock().unwrap(), [false, true, true, true]);
}

/// Every request but questions: what a client of the monitoring socket may not have.
fn changes() -> Vec<Request> {
    let (link, value) = (|| "wan".to_owned(), |text: &str| text.to_owned());
    let text = CONFIG.replace("bulk", "others");
    let file = "router.toml".to_owned();
    vec![
        // First: while something waits to be confirmed all others are refused.
        Request::Confirm,
        Request::Set { link: link(), knob: "module2".into(), class: None, value: value("false") },
        Request::Rate { link: link(), value: value("1Mbit/s") },
        Request::Ring { link: link(), slots: 4, refill: "any".into() },
        Request::Discipline { link: link(), value: value("fifo") },
        Request::Fairdrop { key: "on".into(), value: value("true") },
        Request::Balancer { forwarder: 3, state: "out".into() },
        Request::Reload { text: text.clone(), file: file.clone(), confirm_ms: None, yes: false },
        // These tell keys, and read what they are given.
        Request::Running,
        Request::Diff { text, file },
    ]
}

#[test]
fn at_the_monitoring_socket_nothing_can_be_changed_and_everything_else_asked() {
    let setup = Setup::new();
    let path = setup.folder.path().join("sub/monitor.sock");
    let mut server = setup.start();
    server.monitor(&path, None).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    // The change that waits could be confirmed, if that were allowed.
    let confirmed = server.unconfirmed();
    let mut client = Client::connect(&path).unwrap();
    for change in changes() {
        assert!(!change.is_question(), "{change:?}");
        let refused = client.send(&change).unwrap_err();
        assert!(matches!(&refused, ClientError::Refused(text) if text.contains("only be asked")));
    }
    assert_eq!(setup.asked(), Vec::<String>::new());
    assert!(confirmed.try_recv().is_err());
    assert_eq!(client.version().unwrap(), Version::own());
    assert_eq!(client.show().unwrap().router, "r1");
    assert_eq!(client.flows(5_000_000, None).unwrap().len(), 1_000);
    assert!(client.explain("10.0.0.1:5->10.0.1.1:80/udp", None).unwrap().contains("nothing"));
    // The same requests do change something where they may.
    let mut control = setup.client();
    assert!(changes().iter().all(|change| control.send(change).is_ok()));
    assert!(confirmed.try_recv().is_ok());
    assert!(client.send(&Request::Confirm).is_err());
    server.stop();
    assert!(!path.exists());
}

#[test]
fn hundreds_of_idle_connections_to_the_monitoring_socket_leave_the_control_socket_free() {
    let setup = Setup::new();
    let path = setup.folder.path().join("sub/monitor.sock");
    let mut server = setup.start();
    server.monitor(&path, None).unwrap();
    let crowd: Vec<UnixStream> = (0..400).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut client = setup.client();
    for _ in 0..5 {
        assert_eq!(client.show().unwrap().router, "r1");
        client.set("wan", "module2", None, "false").unwrap();
    }
    drop(crowd);
}

#[test]
fn endless_questions_at_the_monitoring_socket_are_cut_off_early() {
    let setup = Setup::new();
    let path = setup.folder.path().join("sub/monitor.sock");
    let mut server = setup.start();
    server.monitor(&path, None).unwrap();
    let stream = UnixStream::connect(&path).unwrap();
    let _ = (&stream).write_all(&vec![b'x'; 8_192]);
    let mut line = String::new();
    let _ = BufReader::new(&stream).read_line(&mut line);
    assert!(line.is_empty() || line.contains("longer than 4096 bytes"), "{line}");
}

#[test]
fn a_group_that_does_not_exist_is_named() {
    let setup = Setup::new();
    let path = setup.folder.path().join("sub/monitor.sock");
    let mut server = setup.start();
    let error = server.monitor(&path, Some("nobody-has-this-group")).unwrap_err();
    assert!(error.to_string().contains("nobody-has-this-group"), "{error}");
    assert_eq!(error.exit_code(), 2);
    assert!(!path.exists());
    // Its own group may always be given.
    let own = rustix::process::getegid().as_raw().to_string();
    server.monitor(&path, Some(&own)).unwrap();
}

/// Answers one line with another.
fn answering(path: &std::path::Path, reply: &'static str) -> std::thread::JoinHandle<()> {
    let socket = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = socket.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        assert!(line.contains("version"), "{line}");
        (&stream).write_all(format!("{reply}\n").as_bytes()).unwrap();
    })
}

#[test]
fn routers_of_other_versions_are_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let newer = r#"{"version":{"program":"9.8.7","protocol":77}}"#;
    let older = r#"{"error":"not a request: unknown variant `version`, expected one of `show`"}"#;
    for (name, reply, theirs) in [
        ("newer", newer, "control protocol 77 (evenkeel 9.8.7)"),
        ("older", older, "an older control protocol"),
    ] {
        let path = folder.path().join(name);
        let router = answering(&path, reply);
        let error = Client::connect(&path).unwrap().version().unwrap_err();
        assert!(matches!(error, ClientError::OtherVersion { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(theirs) && text.contains(&Version::own().to_string()), "{text}");
        router.join().unwrap();
    }
}

/// A rate that was set while a reload waited was undone with it, without a word.
#[test]
fn nothing_changes_while_a_change_waits_and_what_was_set_before_outlives_the_undoing() {
    let setup = Setup::new();
    let start = setup.folder.path().join("start.toml");
    let _server =
        Server::start(&setup.path(), &setup.config, Some(&start), Arc::clone(&setup.recorder))
            .unwrap();
    let mut client = setup.client();
    let rate = |value: &str| Request::Rate { link: "wan".into(), value: value.into() };
    let told = client.change(&rate("50Mbit/s")).unwrap();
    assert_eq!(told.changes, ["link wan: rate: 100Mbit/s becomes 50Mbit/s"]);
    assert!(client.change(&rate("50Mbit/s")).unwrap().changes.is_empty());
    let running = client.running().unwrap();
    assert_eq!(running.live, told.changes);
    assert_eq!(running.file, running.start_file);
    assert_eq!(running.start_file.as_deref(), start.to_str());
    // The undoing must bring 50 Mbit/s back, not the file's 100.
    let text = CONFIG.replace("100Mbit/s", "80Mbit/s");
    let file = "new.toml".to_owned();
    let reload = |confirm_ms| Request::Reload {
        text: text.clone(),
        file: file.clone(),
        confirm_ms,
        yes: false,
    };
    let told = client.change(&reload(Some(60_000))).unwrap();
    assert_eq!(told.changes, ["link wan: rate: 50Mbit/s becomes 80Mbit/s"]);
    assert_eq!((told.file, told.instead_of), (Some(file.clone()), running.start_file));
    assert_eq!(told.undone_in_ms, Some(60_000));
    let set = |knob: &str, value: &str| Request::Set {
        link: "wan".into(),
        knob: knob.into(),
        class: None,
        value: value.into(),
    };
    setup.asked();
    for change in [
        rate("1Mbit/s"),
        set("module2", "false"),
        set("admission", "on"),
        Request::Ring { link: "wan".into(), slots: 4, refill: "any".into() },
        Request::Discipline { link: "wan".into(), value: "fifo".into() },
        Request::Fairdrop { key: "on".into(), value: "true".into() },
        Request::Balancer { forwarder: 1, state: "out".into() },
    ] {
        let error = client.change(&change).unwrap_err().to_string();
        let says = error.contains("waits to be confirmed") && error.contains(" s left)");
        assert!(says, "{change:?}: {error}");
    }
    assert_eq!(setup.asked(), [""; 0], "the router was told nothing");
    let kept = client.change(&Request::Confirm).unwrap();
    assert_eq!(kept.file, Some(file.clone()));
    assert!(kept.undone_in_ms.is_some_and(|left| left <= 60_000));
    client.change(&rate("70Mbit/s")).unwrap();
    client.change(&reload(Some(1))).unwrap();
    for _ in 0..2_000 {
        if client.running().unwrap().undone_in_ms.is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let running = client.running().unwrap();
    assert_eq!(running.live, ["link wan: rate: 80Mbit/s becomes 70Mbit/s"]);
    client.change(&rate("60Mbit/s")).unwrap();
}

#[test]
fn what_runs_reloads_as_no_change_and_a_file_is_told_apart_from_it() {
    let setup = Setup::new();
    let _server = setup.start();
    let mut client = setup.client();
    client.set("wan", "x_delay", Some("bulk"), "200us").unwrap();
    client.send(&Request::Fairdrop { key: "theta".into(), value: "0.5".into() }).unwrap();
    let text = client.running().unwrap().text;
    let (file, confirm_ms) = ("running".to_owned(), None);
    let diff = |text: &str| Request::Diff { text: text.to_owned(), file: "other.toml".into() };
    assert_eq!(client.change(&diff(&text)).unwrap().changes, [""; 0], "{text}");
    setup.asked();
    let told = client.change(&Request::Reload { text, file, confirm_ms, yes: false }).unwrap();
    assert!(told.changes.is_empty() && setup.asked().len() == 1);
    let told = client.change(&diff(CONFIG)).unwrap().changes.join("\n");
    for wanted in ["x_delay.bulk: 200us becomes", "fairdrop goes"] {
        assert!(told.contains(wanted), "{told}");
    }
    let error = client.change(&diff("[[port]]\nname = 1")).unwrap_err().to_string();
    assert!(error.lines().any(|line| line.starts_with("other.toml:2: port.name: ")), "{error}");
    assert_eq!(setup.asked(), [""; 0], "a look changes nothing");
}
