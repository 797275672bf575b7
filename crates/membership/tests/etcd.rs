//! A real etcd with TLS and passwords, on ports of this machine that nobody else has.

#![cfg(feature = "etcd")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_membership::{Client, Merger};
use evenkeel_netns::etcd::{self, base64};
use evenkeel_netns::testing::{eventually, eventually_some, has_tool};

const BASE: &str = "[router]\nname = \"b\"\n[[port]]\nname = \"sw\"\ninterface = \"e0\"\n\
                    [balancer]\nport = \"sw\"\n[[balancer.forwarder]]\nid = 1\nmac = \
                    \"02:00:00:00:00:01\"\n[membership]\nlease = \"2s\"\n";

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn openssl(folder: &Path, args: &[&str]) {
    let done = Command::new("openssl").args(args).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// An authority, and what it has signed: `server` for 127.0.0.1, and `me`.
fn certificates(folder: &Path) {
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let own = ["req", "-x509", "-days", "30", "-subj", "/CN=ca", "-keyout", "ca.key", "-out"];
    openssl(folder, &[&own[..], &["ca.pem"], &key].concat());
    for name in ["server", "me"] {
        let subject = format!("/CN={name}");
        let [secret, request, pem, names] =
            ["key", "csr", "pem", "ext"].map(|end| format!("{name}.{end}"));
        let ask = ["req", "-subj", &subject, "-keyout", &secret, "-out", &request];
        openssl(folder, &[&ask[..], &key].concat());
        let use_of = "extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=IP:127.0.0.1\n";
        fs::write(folder.join(&names), use_of).unwrap();
        let sign = ["x509", "-req", "-days", "30", "-CA", "ca.pem", "-CAkey", "ca.key"];
        let files = ["-CAcreateserial", "-in", &request, "-extfile", &names, "-out", &pem];
        openssl(folder, &[&sign[..], &files].concat());
        fs::set_permissions(folder.join(secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

struct Etcd {
    process: Child,
    /// For routers, with TLS; for this test, without.
    safe: u16,
    plain: u16,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Etcd {
    fn start(folder: &Path) -> Self {
        let (safe, plain, peer) = (port(), port(), port());
        let urls = format!("https://127.0.0.1:{safe},http://127.0.0.1:{plain}");
        let peers = format!("http://127.0.0.1:{peer}");
        let mut command = etcd::command(&urls, &peers, &folder.join("etcd"));
        for (option, file) in [
            ("--cert-file", "server.pem"),
            ("--key-file", "server.key"),
            ("--trusted-ca-file", "ca.pem"),
        ] {
            command.arg(option).arg(folder.join(file));
        }
        command.arg("--client-cert-auth");
        evenkeel_ports::sys::die_with_parent(&mut command);
        Self { process: command.spawn().unwrap(), safe, plain }
    }

    /// Asks etcd's own gateway for HTTP until it agrees; its answer.
    fn ask(&self, path: &str, token: &str, body: &str) -> String {
        let at = format!("127.0.0.1:{}", self.plain);
        eventually_some(&format!("etcd agrees to {path}"), || etcd::ask(&at, path, token, body))
    }

    /// Who does not say who it is may nothing from now on; whoever says "me" and "good" may all
    /// below /evenkeel. The token of root.
    fn protect(&self) -> String {
        let permission = format!(
            "{{\"name\":\"r\",\"perm\":{{\"permType\":2,\"key\":\"{}\",\"range_end\":\"{}\"}}}}",
            base64(b"/evenkeel/"),
            base64(b"/evenkeel0")
        );
        for (path, body) in [
            ("auth/user/add", r#"{"name":"root","password":"top"}"#),
            ("auth/role/add", r#"{"name":"root"}"#),
            ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
            ("auth/user/add", r#"{"name":"me","password":"good"}"#),
            ("auth/role/add", r#"{"name":"r"}"#),
            ("auth/role/grant", permission.as_str()),
            ("auth/user/grant", r#"{"user":"me","role":"r"}"#),
            ("auth/enable", "{}"),
        ] {
            self.ask(path, "", body);
        }
        let answer = self.ask("auth/authenticate", "", r#"{"name":"root","password":"top"}"#);
        let (_, token) = answer.split_once("\"token\":\"").unwrap();
        token.split_once('"').unwrap().0.to_owned()
    }

    fn put(&self, token: &str, key: &str, value: &str) {
        let key = base64(format!("/evenkeel/{key}").as_bytes());
        let body = format!("{{\"key\":\"{key}\",\"value\":\"{}\"}}", base64(value.as_bytes()));
        self.ask("kv/put", token, &body);
    }
}

/// What clients have reported; the function that they are given has no other place for it.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A client with these settings; what it gives to the router.
fn client(etcd: &Etcd, settings: &str) -> (Client, mpsc::Receiver<RouterConfig>) {
    let at = format!("endpoints = [\"https://127.0.0.1:{}\"]\n", etcd.safe);
    let config = RouterConfig::parse(&format!("{BASE}{at}{settings}"), "r.toml")
        .unwrap_or_else(|error| panic!("{error}"));
    let (send, taken) = mpsc::channel();
    let send = Box::new(move |config: &RouterConfig| {
        send.send(config.clone()).map_err(|_unheard| "nobody listens")
    });
    let report = |text: &str| SAID.lock().unwrap().push(text.to_owned());
    SAID.lock().unwrap().clear();
    let section = config.membership.clone().unwrap();
    let merger = Merger::shared(&config);
    (Client::start(&section, merger, send, Box::new(|| true), report).unwrap(), taken)
}

fn says(words: &[&str]) {
    eventually(&format!("the log says {words:?}"), || {
        let said = SAID.lock().unwrap();
        said.iter().any(|line| words.iter().all(|word| line.contains(word)))
    });
}

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Settings that name files of the folder.
    fn settings(&self, ca: &str, cert: Option<&str>, password: Option<&str>) -> String {
        let line = |key: &str, name: &str| format!("{key} = {:?}\n", self.path(name));
        let mut text = line("ca", ca);
        if let Some(cert) = cert {
            text += &line("cert", &format!("{cert}.pem"));
            text += &line("key", &format!("{cert}.key"));
        }
        if let Some(password) = password {
            text += "user = \"me\"\n";
            text += &line("password_file", password);
        }
        text
    }

    fn secret(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn members_come_by_tls_and_to_nobody_who_does_not_say_who_it_is() {
    let name = "members_come_by_tls_and_to_nobody_who_does_not_say_who_it_is";
    if !has_tool(name, "etcd", "etcd-server") || !has_tool(name, "openssl", "openssl") {
        return;
    }
    let files = Files { folder: tempfile::tempdir().unwrap() };
    certificates(files.folder.path());
    fs::create_dir(files.path("strange")).unwrap();
    certificates(&files.path("strange"));
    files.secret("good", "good\n");
    files.secret("bad", "wrong\n");
    let etcd = Etcd::start(files.folder.path());
    let token = etcd.protect();
    etcd.put(&token, "members/1/mac", "02:00:00:00:00:01");
    etcd.put(&token, "members/2/mac", "02:00:00:00:00:02");

    // As it should be: members come, and changes, and the router is known to be alive.
    let (running, taken) = client(&etcd, &files.settings("ca.pem", Some("me"), Some("good")));
    let members = |config: &RouterConfig| config.balancer.as_ref().unwrap().forwarders.len();
    let patience = Duration::from_secs(10);
    let first = taken.recv_timeout(patience).unwrap_or_else(|_| panic!("{:?}", SAID.lock()));
    assert_eq!(members(&first), 2);
    etcd.put(&token, "members/3/mac", "02:00:00:00:00:03");
    assert_eq!(members(&taken.recv_timeout(patience).unwrap()), 3);
    let alive = format!("{{\"key\":\"{}\"}}", base64(b"/evenkeel/alive/balancer/b"));
    assert!(etcd.ask("kv/range", &token, &alive).contains("\"kvs\""), "alive");
    drop(running);

    // The certificate says who it is, too, if its name is that of a user.
    let (running, taken) = client(&etcd, &files.settings("ca.pem", Some("me"), None));
    assert_eq!(members(&taken.recv_timeout(patience).unwrap()), 3);
    drop(running);

    // And what is wrong is named.
    for (ca, cert, password, words) in [
        ("ca.pem", Some("me"), Some("bad"), &["authentication failed"][..]),
        ("ca.pem", None, Some("good"), &["`cert` and `key` name this router's"]),
        ("strange/ca.pem", Some("me"), Some("good"), &["invalid peer certificate"]),
        ("ca.pem", Some("strange/me"), Some("good"), &["BadCertificate"]),
        ("none.pem", Some("me"), Some("good"), &["membership.ca", "none.pem", "No such file"]),
        ("good", Some("me"), Some("good"), &["membership.ca", "holds no certificate"]),
    ] {
        let (running, taken) = client(&etcd, &files.settings(ca, cert, password));
        says(words);
        says(&["the router goes on with what it has"]);
        println!("{ca} {cert:?} {password:?}: {:?}", SAID.lock().unwrap());
        assert!(taken.try_recv().is_err(), "{ca} {cert:?} {password:?}");
        drop(running);
    }

    // A file that is mended is read with the next connection: nobody has to start anything anew.
    fs::set_permissions(files.path("good"), fs::Permissions::from_mode(0o644)).unwrap();
    let (running, taken) = client(&etcd, &files.settings("ca.pem", Some("me"), Some("good")));
    says(&["membership.password_file", "others may read it"]);
    fs::set_permissions(files.path("good"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(members(&taken.recv_timeout(patience).unwrap()), 3);
    drop(running);
}
