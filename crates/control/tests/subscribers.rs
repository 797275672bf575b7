//! Subscribers changed by the control socket: at once, for a while, and by lists that have lost too
//! many.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_config::RouterConfig;
use evenkeel_config::subscribers::SubscriberChange;
use evenkeel_control::{Client, Request, Server, Target};
use evenkeel_core::BitRate;
use evenkeel_router::{Command, CommandError, Reply};

/// Keeps what it was last made as.
#[derive(Default)]
struct Last(Mutex<Option<RouterConfig>>);

impl Target for Last {
    fn send(&self, command: Command) -> Result<Reply, CommandError> {
        if let Command::Reload(config) = command {
            *self.0.lock().unwrap() = Some(*config);
        }
        Ok(Reply::Done)
    }
}

impl Last {
    /// What somebody receives at most, Mbit/s; `None`: there is nobody of the name.
    fn down(&self, name: &str) -> Option<u64> {
        let last = self.0.lock().unwrap();
        let list = &last.as_ref()?.trees[0].list;
        let entry = list.entries.iter().find(|entry| entry.name == name)?;
        Some(entry.down.cap.unwrap_or(BitRate::ZERO).0 / 1_000_000)
    }
}

struct Bed {
    folder: tempfile::TempDir,
    target: Arc<Last>,
    _server: Server,
    client: Client,
}

fn list(people: u32) -> String {
    let mut list = "name,prefixes,down,up\n".to_owned();
    for number in 0..people {
        list += &format!("s{number},10.1.0.{number},10,5\n");
    }
    list
}

const ROUTER: &str = "[[port]]\nname = \"lan\"\ninterface = \"eth1\"\n[[link]]\nport = \"lan\"\n\
                      rate = \"1Gbit/s\"\n[[tree]]\nsubscribers = \"list.csv\"\ndown = \"lan\"\n";

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("list.csv"), list(20)).unwrap();
        let file = folder.path().join("router.toml");
        fs::write(&file, ROUTER).unwrap();
        let config = RouterConfig::load(&file).unwrap();
        let target = Arc::new(Last::default());
        let socket = folder.path().join("control.sock");
        let server = Server::start(&socket, &config, Some(&file), Arc::clone(&target)).unwrap();
        let client = Client::connect(&socket).unwrap();
        Self { folder, target, _server: server, client }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("router.toml")
    }

    fn set(
        &mut self,
        field: &str,
        value: &str,
        for_ms: Option<u64>,
    ) -> Result<Vec<String>, String> {
        let fields = vec![(field.to_owned(), value.to_owned())];
        let change = SubscriberChange::Set { name: "s3".to_owned(), fields };
        let changes = self.client.change(&Request::Subscriber { change, for_ms });
        let changes = changes.map_err(|error| error.to_string())?;
        assert!(changes.by.is_some_and(|by| by.contains("uid")), "the log says who");
        Ok(changes.changes)
    }

    fn reload(&mut self, people: u32, yes: bool) -> Result<(), String> {
        fs::write(self.folder.path().join("list.csv"), list(people)).unwrap();
        let file = self.file().display().to_string();
        let request = Request::Reload { text: ROUTER.to_owned(), file, confirm_ms: None, yes };
        self.client.change(&request).map(drop).map_err(|error| error.to_string())
    }
}

#[test]
fn a_plan_changes_at_once_and_the_list_says_so() {
    let mut bed = Bed::new();
    let told = bed.set("down", "50Mbit/s", None).unwrap();
    assert_eq!(told, ["tree subscribers: \"s3\" changes"]);
    assert_eq!(bed.target.down("s3"), Some(50));
    assert!(bed.client.subscribers(None).unwrap().contains("s3,,10.1.0.3/32,50Mbit/s,5Mbit/s"));
    assert!(bed.client.running().unwrap().live.iter().any(|live| live.contains("\"s3\" changes")));
    let refused = bed.set("down", "fast", None).unwrap_err();
    assert!(refused.contains("a number alone is Mbit/s"), "{refused}");
    assert_eq!(bed.target.down("s3"), Some(50));
}

#[test]
fn a_boost_ends_by_itself_unless_the_plan_was_changed_since() {
    let mut bed = Bed::new();
    bed.set("down", "30Mbit/s", Some(100)).unwrap();
    assert_eq!(bed.target.down("s3"), Some(30));
    let end = Instant::now() + Duration::from_secs(10);
    while bed.target.down("s3") == Some(30) && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bed.target.down("s3"), Some(10));
    bed.set("down", "30Mbit/s", Some(100)).unwrap();
    bed.set("down", "20Mbit/s", None).unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(bed.target.down("s3"), Some(20));
}

#[test]
fn a_list_that_has_lost_more_than_a_tenth_asks() {
    let mut bed = Bed::new();
    bed.reload(18, false).unwrap();
    let refused = bed.reload(16, false).unwrap_err();
    assert!(refused.contains("has 16 subscribers, where it had 18"), "{refused}");
    assert!(refused.contains("--yes"), "{refused}");
    assert_eq!(bed.target.down("s17"), Some(10), "everybody is as before");
    bed.reload(16, true).unwrap();
    assert_eq!(bed.target.down("s17"), None);
}
