//! A real etcd for tests (Debian package `etcd-server`), spoken to by its own gateway for HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

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
