<<<<<<< HEAD
//! A real etcd for tests (Debian package `etcd-server`), spoken to by its own gateway for HTTP.
=======
//! A real etcd for tests (Debian package `etcd-server`), asked by its own gateway for HTTP.
>>>>>>> 37cf0013 (Cluster: an operator's page and its commands, done by a test (every node upgraded in turn, no packet lost); flows go back to a forwarder that was silent; what a late window still has goes before the next state: two sent on one link now and then, and a pause left a forwarder without work)

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

<<<<<<< HEAD
/// The command that runs it for these clients' addresses, with its data in a folder.
#[must_use]
pub fn command(clients: &str, peers: &str, data: &Path) -> Command {
    let mut command = Command::new("etcd");
    command.args(["--listen-client-urls", clients, "--advertise-client-urls", clients]);
    command.args(["--listen-peer-urls", peers, "--log-level", "error", "--data-dir"]).arg(data);
    command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Its answer to a request, the header first; `None` if it does not agree, or is not there.
/// `token`: of who asks; empty for nobody.
#[must_use]
pub fn ask(at: &str, path: &str, token: &str, body: &str) -> Option<String> {
    let token = match token {
        "" => String::new(),
        token => format!("Authorization: {token}\r\n"),
    };
    let length = body.len();
    let request = format!(
        "POST /v3/{path} HTTP/1.1\r\nHost: {at}\r\n{token}Content-Length: {length}\r\nConnection: \
         close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(at).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

/// How the gateway wants keys and values written.
=======
use crate::testing::eventually;

/// As its gateway wants keys and values.
>>>>>>> 37cf0013 (Cluster: an operator's page and its commands, done by a test (every node upgraded in turn, no packet lost); flows go back to a forwarder that was silent; what a late window still has goes before the next state: two sent on one link now and then, and a pause left a forwarder without work)
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for digit in 0..4 {
            let at = (word >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= three.len() { char::from(DIGITS[at]) } else { '=' });
        }
    }
    text
}
<<<<<<< HEAD
=======

/// One member that listens for clients at `urls`, for others at this port of the loopback, and
/// keeps its data in `folder`.
#[must_use]
pub fn command(urls: &str, peer: u16, folder: &Path) -> Command {
    let mut command = Command::new("etcd");
    command.args(["--listen-client-urls", urls, "--advertise-client-urls", urls]);
    command.args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}")]);
    command.args(["--log-level", "error", "--data-dir"]).arg(folder);
    command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Asks the member at `address` until it agrees; its answer. `token`: whom it has let in, or
/// nothing.
///
/// # Panics
/// If it never agrees.
#[must_use]
pub fn ask(address: &str, path: &str, token: &str, body: &str) -> String {
    let token = match token {
        "" => String::new(),
        token => format!("Authorization: {token}\r\n"),
    };
    let length = body.len();
    let request = format!(
        "POST /v3/{path} HTTP/1.1\r\nHost: a\r\n{token}Content-Length: {length}\r\nConnection: \
         close\r\n\r\n{body}"
    );
    let mut answer = String::new();
    eventually(&format!("etcd agrees to {path}"), || {
        answer.clear();
        let Ok(mut stream) = TcpStream::connect(address) else { return false };
        let asked = stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok();
        asked && answer.starts_with("HTTP/1.1 200")
    });
    answer
}
>>>>>>> 37cf0013 (Cluster: an operator's page and its commands, done by a test (every node upgraded in turn, no packet lost); flows go back to a forwarder that was silent; what a late window still has goes before the next state: two sent on one link now and then, and a pause left a forwarder without work)
