//! Keys are shown nowhere but to whoever may change the router, and a full disk keeps what was
//! saved. Needs root; says so and passes otherwise.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_netns::testing::{eventually, text};
use serde_json::Value;

use super::run::{CONFIG, Live, end, start};

const KEY: &str = "c0ffee11223344556677889900aabbccddeeff01";
/// Of another length than any key: it is refused.
const WRONG: &str = "badc0de11223344556677889900aabbccddeeff0199";

/// How long an answer may take.
const LONG: Duration = Duration::from_secs(2);

/// The class `bulk` is encrypted.
fn config(folder: &str, key: &str) -> String {
    let service = format!(
        "[router]\nname = \"edge\"\nmonitor = \"{folder}/monitor.sock\"\n[[service]]\nname = \
         \"vpn\"\nwork = {{ kind = \"esp\", local = \"10.2.0.1\", remote = \"10.2.0.2\", spi = \
         256, key = \"0x{key}\" }}\n"
    );
    let class = CONFIG.replace("name = \"bulk\"\n", "name = \"bulk\"\nservice = \"vpn\"\n");
    // Fragments have no ports.
    service + &class.replace(", destination_port = 5002", "")
}

fn get(at: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // A stream of events does not end.
    let until = Instant::now() + LONG;
    let (mut reply, mut some) = (Vec::new(), [0; 4_096]);
    while Instant::now() < until
        && let Ok(read @ 1..) = stream.read(&mut some)
    {
        reply.extend_from_slice(&some[..read]);
    }
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn keys_are_in_no_log_no_answer_and_no_page() {
    let Some(mut live) = Live::prepared("keys", CONFIG, 1) else { return };
    let home = live.folder.path().to_owned();
    let path = |name: &str| home.join(name).display().to_string();
    let (file, wrong, monitor) = (path("router.toml"), path("wrong.toml"), path("monitor.sock"));
    let folder = path("");
    for (file, key) in [(&file, KEY), (&wrong, WRONG)] {
        std::fs::write(file, config(folder.trim_end_matches('/'), key)).unwrap();
        // A key that everybody may read is refused.
        std::fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    }
    let log = path("router.log");
    live.router = start(&live.net, &live.folder);
    live.wait_until_it_forwards();
    live.ping();
    // What is encrypted does not come back: nothing that waits for an answer would begin.
    let mut shell =
        live.net.command("a", "timeout 20 bash -s").stdin(Stdio::piped()).spawn().unwrap();
    let sends = b"for _ in $(seq 300); do echo secret >/dev/udp/10.2.0.2/5002; done\n";
    shell.stdin.take().unwrap().write_all(sends).unwrap();
    assert!(shell.wait().unwrap().success());
    eventually("packets are encrypted", || live.bulk("in_packets") >= 100);
    let mut told = Vec::new();
    let mut note = |what: &str, said: String| told.push((what.to_owned(), said));
    let ctl = |socket: &str, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        text(&command.args(["ctl", "--socket", socket]).args(words).output().unwrap())
    };
    let control = path("control.sock");
    for words in [
        &["show"][..],
        &["show", "--json"],
        &["reload", &wrong],
        &["check", &wrong],
        &["reload", &file],
        &["diff", &file],
        &["tree"],
    ] {
        note(&words.join(" "), ctl(&control, words));
    }
    // Whoever may change the router may see its keys; whoever looks only may not.
    assert!(ctl(&control, &["running"]).contains(KEY));
    for words in [&["running"][..], &["running", "--json"], &["show", "--json"], &["save"]] {
        note(&format!("monitor: {}", words.join(" ")), ctl(&monitor, words));
    }
    let check = Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(["check", &file]).output();
    note("check", text(&check.unwrap()));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["serve", "--listen", "127.0.0.1:0", &monitor])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(serve.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("http://") {
        assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let at = said.split("http://").nth(1).and_then(|rest| rest.split(['/', ' ', '\n']).next());
    let at = at.expect(&said).to_owned();
    let name = said.split("router ").nth(1).and_then(|rest| rest.split(' ').next());
    let name = name.expect(&said).to_owned();
    eventually("it has seen the router", || get(&at, "/metrics").contains("evenkeel_up{"));
    let api = get(&at, "/api/v1/openapi.json");
    let api: Value = serde_json::from_str(&api[api.find("\r\n\r\n").unwrap()..]).unwrap();
    let paths: Vec<String> = api["paths"].as_object().unwrap().keys().cloned().collect();
    assert!(paths.len() > 5, "{paths:?}");
    for path in paths.iter().chain(["/metrics".to_owned(), "/".to_owned()].iter()) {
        let asked = path.replace("{router}", &name).replace("{name}", &name);
        note(&asked, get(&at, &asked));
    }
    end(serve);
    note("the journal", std::fs::read_to_string(&log).unwrap());
    assert!(told.iter().any(|(what, said)| what == "the journal" && said.contains("refused")));
    for (what, said) in &told {
        let said = said.to_lowercase();
        assert!(!said.contains(KEY) && !said.contains(WRONG), "{what}: {said}");
    }
}

/// On a small file system that only this script sees. Arguments: the command, a folder to mount
/// over, the router's socket, the file that the router started from.
const FULL: &str = r#"
mount -t tmpfs -o size=32k none "$2" || exit 99
cp "$4" "$2/router.toml"
cat /dev/zero >"$2/fill" 2>/dev/null
"$1" ctl --socket "$3" save "$2/router.toml"; echo "saved $?"
cmp "$4" "$2/router.toml" && echo "as it was"
ls "$2" | tr '\n' ' '
rm "$2/fill"
"$1" ctl --socket "$3" save "$2/router.toml" >/dev/null; echo "saved $?"
grep -c 33Mbit/s "$2/router.toml"
"#;

#[test]
fn a_full_disk_keeps_the_file_that_would_be_saved_over() {
    let Some(live) = Live::with("save on a full disk", CONFIG, 1) else { return };
    assert!(live.ctl(&["rate", "wan", "33Mbit/s"]).status.success());
    let at = |name: &str| live.folder.path().join(name);
    std::fs::create_dir(at("disk")).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", FULL, "sh", env!("CARGO_BIN_EXE_evenkeel")])
        .args([at("disk"), at("control.sock"), at("router.toml")])
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "saved 1\nas it was\nfill router.toml saved 0\n1\n", "{complained}");
    assert!(complained.contains("cannot write") && complained.contains("No space"), "{complained}");
    live.ping();
}
