//! `ctl` against a control socket whose router is a stand-in.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_config::RouterConfig;
use evenkeel_control::{Server, Target};
use evenkeel_core::Bytes;
use evenkeel_core::measure::ClassCounters;
use evenkeel_router::snapshot::{ClassSnapshot, LinkSnapshot, PortSnapshot, Snapshot};
use evenkeel_router::{Command as RouterCommand, CommandError, Reply};

const CONFIG: &str = r#"
[[port]]
name = "wan"
interface = "eth0"
[[class]]
name = "rest"
[[link]]
port = "wan"
[link.discipline]
kind = "lct"
"#;

/// Every time it is asked, a second has passed and class `rest` has sent 7 more packets at 100 us
/// each.
#[derive(Default)]
struct Ticking {
    asked: Mutex<u64>,
    changes: Mutex<Vec<String>>,
}

impl Target for Ticking {
    fn send(&self, command: RouterCommand) -> Result<Reply, CommandError> {
        if !matches!(command, RouterCommand::Show) {
            self.changes.lock().unwrap().push(format!("{command:?}"));
            return Ok(Reply::Done);
        }
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        let packets = *asked * 7;
        Ok(Reply::Snapshot(Box::new(Snapshot {
            time_ns: *asked * 1_000_000_000,
            uptime_ns: *asked * 1_000_000_000,
            router: "r1".to_owned(),
            ports: vec![PortSnapshot {
                name: "wan".to_owned(),
                up: true,
                ..PortSnapshot::default()
            }],
            links: vec![LinkSnapshot {
                port: "wan".to_owned(),
                discipline: "lct".to_owned(),
                rate_bps: Some(100_000_000),
                classes: vec![ClassSnapshot {
                    name: "rest".to_owned(),
                    counts: ClassCounters {
                        in_packets: packets,
                        out_packets: packets,
                        ..ClassCounters::of_sent(packets, Bytes(0))
                    },
                    delay_sum_ns: packets * 100_000,
                    delay_max_ns: 100_000,
                    delay_buckets: vec![(98_304, packets)],
                    ..ClassSnapshot::default()
                }],
                ..LinkSnapshot::default()
            }],
            ..Snapshot::default()
        })))
    }
}

struct Setup {
    folder: tempfile::TempDir,
    target: Arc<Ticking>,
    _server: Server,
}

impl Setup {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = Arc::<Ticking>::default();
        let config = RouterConfig::parse(CONFIG, "router.toml").unwrap();
        let server =
            Server::start(&folder.path().join("s"), &config, None, Arc::clone(&target)).unwrap();
        Self { folder, target, _server: server }
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_evenkeel"))
            .args(["ctl", "--socket"])
            .arg(self.folder.path().join("s"))
            .args(arguments)
            .output()
            .unwrap()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn watch_prints_a_row_per_window() {
    let setup = Setup::new();
    let output = setup.ctl(&["watch", "--interval", "10ms", "--count", "2"]);
    assert!(output.status.success());
    // Counters that are declared later stand behind `sent`.
    let around = [
        (
            "t,link,class,mean_delay_us,p50_us,p99_us,sent,",
            "dropped,qlen,calls_none,calls_one,calls_many,ci_delay,ci_loss,x_delay_us",
        ),
        ("1.000,wan,rest,100.0,100.0,100.0,7,", "0,0,0,0,0,,,"),
        ("2.000,wan,rest,100.0,100.0,100.0,7,", "0,0,0,0,0,,,"),
    ];
    let text = text(&output);
    assert_eq!(text.lines().count(), around.len());
    for (line, (begin, end)) in text.lines().zip(around) {
        assert!(line.starts_with(begin) && line.ends_with(end), "{line}");
    }
    let output = setup.ctl(&["watch", "--interval", "10ms", "--count", "1", "--link", "lan"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("links are wan"));
}

#[test]
fn show_is_readable_and_json() {
    let setup = Setup::new();
    let shown = text(&setup.ctl(&["show"]));
    assert!(shown.contains("link wan: lct, 100Mbit/s"), "{shown}");
    let value: serde_json::Value =
        serde_json::from_str(&text(&setup.ctl(&["--json", "show"]))).unwrap();
    assert_eq!(value["links"][0]["classes"][0]["name"], "rest");
}

#[test]
fn a_wrong_value_is_refused_with_its_range_and_nothing_changes() {
    let setup = Setup::new();
    let output = setup.ctl(&["set", "wan", "x_delay", "rest", "100s"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("range"), "{said}");
    assert!(setup.target.changes.lock().unwrap().is_empty());
    assert!(setup.ctl(&["set", "wan", "x_delay", "rest", "10us"]).status.success());
    assert!(setup.ctl(&["set", "wan", "module2", "false"]).status.success());
    assert!(setup.ctl(&["discipline", "wan", "fifo"]).status.success());
    assert_eq!(setup.target.changes.lock().unwrap().len(), 3);
}

#[test]
fn a_script_with_errors_changes_nothing() {
    let setup = Setup::new();
    let file = setup.folder.path().join("steps");
    std::fs::write(&file, "0s set wan module2 false\n1 rate wan 1Mbit/s\n").unwrap();
    let output = setup.ctl(&["script", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with(&format!("{}:2: ", file.display())), "{said}");
    assert!(setup.target.changes.lock().unwrap().is_empty());
    std::fs::write(&file, "0s set wan module2 false\n10ms rate wan 1Mbit/s\n").unwrap();
    let output = setup.ctl(&["script", file.to_str().unwrap()]);
    assert!(output.status.success());
    assert_eq!(text(&output).lines().count(), 2);
    assert_eq!(setup.target.changes.lock().unwrap().len(), 2);
}

#[test]
fn what_runs_is_printed_told_apart_and_saved() {
    let setup = Setup::new();
    let path = |name: &str| setup.folder.path().join(name).display().to_string();
    let (start, mine) = (path("router.toml"), path("mine.toml"));
    // The stand-in was started without a file.
    let nowhere = setup.ctl(&["save"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8(nowhere.stderr).unwrap().contains("not started from a file"));
    std::fs::write(&start, CONFIG).unwrap();
    let told = text(&setup.ctl(&["diff", &start]));
    assert!(told.contains(&start) && told.contains("nothing changes"), "{told}");
    let told = text(&setup.ctl(&["rate", "wan", "33Mbit/s"]));
    assert_eq!(told.trim(), "link wan: rate: none becomes 33Mbit/s");
    let told = text(&setup.ctl(&["diff", &start]));
    assert!(told.contains("  link wan: rate: 33Mbit/s becomes none"), "{told}");
    let shown = text(&setup.ctl(&["running"]));
    assert!(shown.contains("# changed since: link wan: rate: none becomes 33Mbit/s"), "{shown}");
    std::fs::write(&mine, &shown).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(["check", &mine]).output();
    assert!(checked.unwrap().status.success(), "{shown}");
    let told = text(&setup.ctl(&["diff", &mine]));
    assert!(told.contains("nothing changes"), "{told}");
    let told = text(&setup.ctl(&["save", &mine]));
    assert!(told.contains("left as it is"), "{told}");
    let told = text(&setup.ctl(&["save", &start]));
    assert!(told.contains(&format!("what was in it is in {start}~")), "{told}");
    assert_eq!(std::fs::read_to_string(format!("{start}~")).unwrap(), CONFIG);
    let told = text(&setup.ctl(&["reload", &start, "--confirm", "60s"]));
    assert!(told.contains(&start) && told.contains("undone in 60 s unless"), "{told}");
    for refused in [&["save", &mine][..], &["set", "wan", "x_delay", "rest", "9us"]] {
        let output = setup.ctl(refused);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("waits to be confirmed"), "{refused:?}: {said}");
    }
    let told = text(&setup.ctl(&["confirm"]));
    assert!(told.starts_with(&format!("kept: {start} (")), "{told}");
    let told = text(&setup.ctl(&["--json", "reload", &mine]));
    let value: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&value["ok"], &value["file"]), (&true.into(), &mine.into()));
    let folder = setup.ctl(&["save", setup.folder.path().to_str().unwrap()]);
    assert_eq!(folder.status.code(), Some(2));
}

/// Help, reference and schema name the settings that change live, because all of them are made from
/// the one list.
#[test]
fn help_reference_and_schema_name_what_changes_live() {
    let help = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["ctl", "set", "--help"])
        .output()
        .unwrap();
    // Clap breaks the lines where the terminal does.
    let help = text(&help).split_whitespace().collect::<Vec<_>>().join(" ");
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
    let page = std::fs::read_to_string(format!("{docs}reference-router.md")).unwrap();
    let live = page.split("## What changes while a router runs").nth(1).unwrap();
    let schema = std::fs::read_to_string(format!("{docs}schema/router.schema.json")).unwrap();
    let names = evenkeel_config::live_names();
    assert!(names.contains(&"limit") && names.contains(&"ring") && !names.contains(&"timer_tick"));
    for name in names {
        assert!(help.contains(&format!("{name},")), "{name} in:\n{help}");
        assert!(live.contains(&format!("| `{name}` |")), "{name} in:\n{live}");
        assert!(schema.contains(&format!("\"{name}\":")), "{name} in the schema");
    }
}

#[test]
fn top_prints_one_table_where_no_terminal_is() {
    let setup = Setup::new();
    let output = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["top", "--interval", "200ms", "--socket"])
        .arg(setup.folder.path().join("s"))
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = text(&output);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert_eq!(rows[0][..3], ["link", "class", "sent"]);
    assert_eq!(
        (rows[1][..2].join(" "), rows[2][..2].join(" ")),
        ("wan (lct)".into(), "wan rest".into())
    );
    assert!(text.contains("100 us"), "{text}");
    let gone = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["top", "--socket", "/nowhere/there.sock"])
        .output()
        .unwrap();
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8(gone.stderr).unwrap().contains("no router listens at /nowhere"));
}

#[test]
fn serve_says_where_and_serves_what_the_router_counts() {
    let setup = Setup::new();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .arg(format!("r1={}", setup.folder.path().join("s").display()))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(serve.stdout.take().unwrap()).lines();
    let said = lines.find_map(|line| {
        let line = line.unwrap();
        Some(line.strip_prefix("serving http://")?.split('/').next()?.to_owned())
    });
    let address = said.expect("it says where");
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !ask("/metrics").contains("evenkeel_up{router=\"r1\"} 1.0") {
        assert!(Instant::now() < end, "{}", ask("/metrics"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ask("/").contains("<title>Evenkeel</title>"));
    serve.kill().unwrap();
    serve.wait().unwrap();
    let bad = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["serve", "a=/x", "a=/y"])
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8(bad.stderr).unwrap().contains("two routers are called a"));
}

/// Whoever shows the token changes the router; the log says both, and never the token.
#[test]
fn serve_lets_who_shows_the_token_change_something_and_its_log_does_not_tell_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let setup = Setup::new();
    let file = setup.folder.path().join("token");
    let token = "2c26b46b68ffc68ff99b453c1d304134";
    std::fs::write(&file, token).unwrap();
    let serve = |mode, arguments: &[&str]| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--token-file"]).arg(&file);
        serve.args(arguments).arg(format!("r1={}", setup.folder.path().join("s").display()));
        serve.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        serve
    };
    let refused = |mode, arguments: &[&str]| {
        let output = serve(mode, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(0o600, &[]).contains("--allow-changes"));
    let open = refused(0o644, &["--allow-changes"]);
    assert!(open.contains("chmod 600") && !open.contains(token), "{open}");
    let mut serve = serve(0o600, &["--allow-changes"]).spawn().unwrap();
    let mut out = BufReader::new(serve.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("serving http://") {
        assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let address = said.split("serving http://").nth(1).unwrap().split('/').next().unwrap();
    let change = |token: &str| {
        let body = r#"{"change":"rate","link":"wan","value":"8Mbit/s"}"#;
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /api/v1/routers/r1/changes HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let other = "f".repeat(token.len());
    assert!(change(&other).starts_with("HTTP/1.1 401"));
    assert_eq!(*setup.target.changes.lock().unwrap(), Vec::<String>::new());
    let told = change(token);
    assert!(told.starts_with("HTTP/1.1 200") && told.contains("8Mbit/s"), "{told}");
    assert_eq!(setup.target.changes.lock().unwrap().len(), 1);
    // Ended, not killed: it writes its log in a thread of its own.
    Command::new("kill").arg(serve.id().to_string()).status().unwrap();
    serve.wait().unwrap();
    out.read_to_string(&mut said).unwrap();
    serve.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    for line in ["would change something without the token", "router r1: changed over HTTP by "] {
        assert!(said.contains(line), "{said}");
    }
    assert!(!said.contains(token) && !said.contains(&other), "{said}");
}

/// On a file system of its own that only this script sees. Arguments: the command, the folder to
/// mount over, the router's socket, and where to note what the server says.
const FULL_DISK: &str = r#"
mount -t tmpfs -o size=200k none "$2" || exit 99
"$1" serve --listen 127.0.0.1:0 --history "$2" --history-size 64MiB "r1=$3"; echo "too large $?"
"$1" serve --listen 127.0.0.1:0 --interval 200ms --history "$2" --history-size 64KiB "r1=$3" \
  >"$4" 2>&1 &
rows() { "$1" history "$2/r1.history" --step seconds 2>/dev/null | wc -l; }
more_than() { for _ in $(seq 300); do [ "$(rows "$@")" -gt "$least" ] && return; sleep 0.1; done; }
least=3; more_than "$@"
cat /dev/zero >"$2/fill" 2>/dev/null
echo "left $(stat -f -c %f "$2")"
before=$(rows "$@"); least=$((before + 3)); more_than "$@"
echo "noted $(($(rows "$@") > before))"
"$1" history "$2/r1.history" --step seconds >/dev/full; echo "printed $?"
kill $!
"#;

#[test]
fn a_full_disk_is_told_at_the_start_and_costs_nothing_later() {
    if !evenkeel_netns::testing::available("a_full_disk_is_told_at_the_start") {
        return;
    }
    let setup = Setup::new();
    let at = |name: &str| setup.folder.path().join(name);
    std::fs::create_dir(at("disk")).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", FULL_DISK, "sh", env!("CARGO_BIN_EXE_evenkeel")])
        .args([at("disk"), at("s"), at("log")])
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    let log = std::fs::read_to_string(at("log")).unwrap_or_default();
    let wanted = "too large 1\nleft 0\nnoted 1\nprinted 1\n";
    assert_eq!(text(&output), wanted, "{complained}{log}");
    assert_eq!(complained.matches("No space left").count(), 2, "{complained}");
    assert!(complained.contains("r1.history"), "{complained}");
}
