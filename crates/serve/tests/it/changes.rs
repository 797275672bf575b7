//! Nothing can be changed over HTTP, unless it was allowed and the token is shown.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use evenkeel_serve::{Options, Server, Token};

use crate::bed::{Setup, ask, get, json, options, raw, until, watched};

const PATH: &str = "/api/v1/routers/edge/changes";
const TOKEN: &str = "9f86d081884c7d659a2feaa0c55ad015";
const RATE: &str = r#"{"change":"rate","link":"wan","value":"8Mbit/s"}"#;

/// One that lets who knows the token change things, at this socket.
fn allowing(setup: &Setup, socket: &Path) -> Server {
    let file = setup.folder.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let token = Some(Token::read(&file).unwrap());
    fs::remove_file(&file).unwrap();
    let history = Some((setup.folder.path().join("past"), 256 << 10));
    Server::start(Options { token, history, ..options(vec![watched("edge", socket)]) }).unwrap()
}

/// The answer to a change, with these lines among its headers.
fn post(server: &Server, path: &str, lines: &str, body: &str) -> (u16, String) {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    let length = format!("Content-Length: {}\r\n", body.len());
    raw(server.address(), format!("{head}{length}{lines}\r\n{body}").as_bytes())
}

fn with_token(server: &Server, body: &str) -> (u16, String) {
    post(server, PATH, &format!("Authorization: Bearer {TOKEN}\r\n"), body)
}

fn changes(setup: &Setup) -> Vec<String> {
    setup.target.changes.lock().unwrap().clone()
}

#[test]
fn without_leave_nobody_changes_anything_whatever_he_shows() {
    let setup = Setup::new();
    let _router = setup.router();
    // Also where the socket would let it.
    for socket in [setup.socket(), setup.control()] {
        let server = Server::start(options(vec![watched("edge", &socket)])).unwrap();
        for (status, why) in [post(&server, PATH, "", RATE), with_token(&server, RATE)] {
            assert!(status == 403 && why.contains("--allow-changes"), "{status}: {why}");
        }
    }
    assert_eq!(changes(&setup), Vec::<String>::new());
}

#[test]
fn without_the_token_nobody_changes_anything() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = allowing(&setup, &setup.control());
    let short = &TOKEN[1..];
    for lines in [
        String::new(),
        "Authorization: Bearer \r\n".to_owned(),
        format!("Authorization: Bearer {short}\r\n"),
        format!("Authorization: Bearer {TOKEN}0\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: {TOKEN}\r\n"),
        format!("Cookie: token={TOKEN}\r\n"),
        "Authorization: Bearer \u{fffd}\r\n".to_owned(),
    ] {
        let (status, why) = post(&server, PATH, &lines, RATE);
        assert_eq!(status, 401, "{lines}: {why}");
        assert!(why.to_lowercase().contains("www-authenticate: bearer"), "{why}");
    }
    let in_the_address = format!("{PATH}?token={TOKEN}&access_token={TOKEN}");
    assert_eq!(post(&server, &in_the_address, "", RATE).0, 401);
    // It is not told either what there would be to change.
    assert_eq!(post(&server, "/api/v1/routers/nobody/changes", "", RATE).0, 401);
    assert_eq!(post(&server, PATH, "", &"x".repeat(70_000)).0, 401);
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        assert_eq!(ask(server.address(), method, PATH, "localhost").0, 405, "{method}");
    }
    let elsewhere = format!(
        "POST {PATH} HTTP/1.1\r\nHost: attacker.example\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n{RATE}",
        RATE.len()
    );
    assert_eq!(raw(server.address(), elsewhere.as_bytes()).0, 421);
    assert_eq!(changes(&setup), Vec::<String>::new());
}

#[test]
fn who_shows_the_token_changes_what_is_offered_and_nothing_else() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = allowing(&setup, &setup.control());
    let (status, told) = with_token(&server, RATE);
    assert_eq!(status, 200, "{told}");
    assert!(told.contains("10Mbit/s becomes 8Mbit/s") && told.contains("uid"), "{told}");
    let knob = r#"{"change":"set","link":"wan","knob":"limit","value":"77"}"#;
    assert_eq!(with_token(&server, knob).0, 200);
    let boost = r#"{"change":"boost","name":"ann","by":2.5,"for_s":60}"#;
    let (status, told) = with_token(&server, boost);
    assert!(status == 200 && told.contains("until 60 s are over"), "{told}");
    let done = changes(&setup);
    assert_eq!(done.len(), 3, "{done:?}");
    assert!(done[2].contains("ann,") && done[2].contains(",25Mbit/s,"), "{done:?}");
    for (bad, why) in [
        ("", "not a change"),
        ("{", "not a change"),
        ("[1]", "not a change"),
        (r#"{"change":"reload","text":"","file":"x"}"#, "unknown variant `reload`"),
        (r#"{"change":"rate","link":"wan","value":"1Mbit/s","x":1}"#, "unknown field `x`"),
        (r#"{"change":"rate","link":"wan","value":"fast"}"#, "fast"),
        (r#"{"change":"boost","name":"ann","by":2,"for_s":0}"#, "for_s = 0: 1 to 31536000"),
        (r#"{"change":"boost","name":"ann","by":-1,"for_s":9}"#, "-1 times its caps: more than 0"),
        (r#"{"change":"boost","name":"ann","by":1e300,"for_s":9}"#, "at most 1000"),
        (r#"{"change":"boost","name":"carol","by":2,"for_s":9}"#, "carol has no cap"),
    ] {
        let (status, told) = with_token(&server, bad);
        assert!(status == 400 && told.contains(why), "{bad}: {status} {told}");
    }
    assert_eq!(with_token(&server, &" ".repeat((64 << 10) + 1)).0, 413);
    assert_eq!(changes(&setup), done);
}

#[test]
fn at_a_monitoring_socket_the_token_changes_nothing() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = allowing(&setup, &setup.socket());
    let (status, why) = with_token(&server, RATE);
    assert!(status == 400 && why.contains("use its control socket"), "{status}: {why}");
    assert_eq!(changes(&setup), Vec::<String>::new());
}

#[test]
fn the_token_is_in_no_answer_and_in_no_file() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = allowing(&setup, &setup.control());
    let at = server.address();
    assert_eq!(with_token(&server, RATE).0, 200);
    until("the past is noted", || {
        let told = json(at, "/api/v1/routers/edge/history?from_ms=0");
        !told["windows"].as_array().unwrap().is_empty()
    });
    for path in [
        "/",
        "/metrics",
        "/api/v1/routers",
        "/api/v1/openapi.json",
        "/api/v1/routers/edge/state",
        "/api/v1/routers/edge/windows",
        "/api/v1/routers/edge/marks",
        "/api/v1/routers/edge/alarms",
        "/api/v1/routers/edge/flows",
        "/api/v1/routers/edge/subscribers",
        "/api/v1/routers/edge/history?from_ms=0",
    ] {
        let (status, told) = get(at, path);
        assert!(status == 200 && !told.contains(TOKEN), "{path}: {status}");
    }
    let (_, refused) = with_token(&server, r#"{"change":"x"}"#);
    assert!(!refused.contains(TOKEN), "{refused}");
    drop(server);
    for file in fs::read_dir(setup.folder.path().join("past")).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes()));
    }
}
