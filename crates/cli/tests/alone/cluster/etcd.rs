//! A real etcd in a namespace of its own.

use evenkeel_netns::etcd::{self, base64};

use super::*;

const AT: &str = "10.7.0.2:2379";

impl Cluster {
    /// (Re)starts it on the data it has.
    fn etcd(&mut self) {
        let url = format!("http://{AT}");
        let data = self.folder.path().join("etcd");
        let mut command = etcd::command(&url, "http://127.0.0.1:2380", &data);
        sys::die_with_parent(&mut command);
        sys::spawn_in_netns(&mut command, &self.net.name("ed")).unwrap();
        self.processes.push(("ed".to_owned(), command.spawn().unwrap()));
    }

    /// Writes keys at once, by etcd's own gateway for HTTP.
    fn put(&self, pairs: &[(&str, &str)]) {
        let one = |(key, value): &(&str, &str)| {
            let key = base64(format!("/evenkeel/{key}").as_bytes());
            format!(
                "{{\"requestPut\":{{\"key\":\"{key}\",\"value\":\"{}\"}}}}",
                base64(value.as_bytes())
            )
        };
        let all: Vec<String> = pairs.iter().map(one).collect();
        let body = format!("{{\"success\":[{}]}}", all.join(","));
        let namespace = self.net.name("ed");
        let done = std::thread::spawn(move || {
            sys::enter_netns(&namespace).unwrap();
            eventually("etcd takes a value", || etcd::ask(AT, "kv/txn", "", &body).is_some());
        });
        done.join().unwrap();
    }

    /// Waits until voice has this part of each link for a while, and at least so many packets
    /// arrive in that time; how many did.
    fn settles(&self, what: &str, part: f64, least: u64) -> u64 {
        let mut counts = Vec::new();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(500));
            counts = self.during(Duration::from_millis(1_500));
            let all: u64 = counts.iter().sum();
            let share = |link: usize| {
                counts[2 * link + 1] as f64 / (counts[2 * link] + counts[2 * link + 1]) as f64
            };
            if all >= least && (0..LINKS).all(|link| (share(link) / part - 1.0).abs() <= 0.02) {
                println!("{what}: {counts:?}");
                return all;
            }
        }
        panic!("{what}: {counts:?}: voice should have {part}, all at least {least}");
    }

    fn configurations(&self) -> Vec<String> {
        let of =
            |node: &&str| self.show(node)["cluster"]["configuration"].as_str().unwrap().to_owned();
        ["f1", "f2", "f3"].iter().map(of).collect()
    }

    /// Waits until all forwarders have another configuration than `than`, the same; which.
    fn another(&self, what: &str, than: &str) -> String {
        eventually(what, || {
            let all = self.configurations();
            all[0] != than && all.iter().all(|one| *one == all[0])
        });
        self.configurations().remove(0)
    }
}

#[test]
fn etcd_leads_and_is_not_missed() {
    let name = "etcd_leads_and_is_not_missed";
    if !available(name) || !evenkeel_netns::testing::has_tool(name, "etcd", "etcd-server") {
        return;
    }
    let membership = format!("[membership]\nendpoints = [\"http://{AT}\"]\nlease = \"3s\"\n");
    let mut cluster = Cluster::of("", &membership);
    cluster.net.ip("ed", "link set lo up");
    eventually("all follow node 1 without etcd", || {
        ["f1", "f2", "f3"].iter().all(|node| cluster.show(node)["cluster"]["master"] == 1)
    });
    let of_file = cluster.configurations().remove(0);
    cluster.offer(Duration::from_micros(600));
    cluster.etcd();
    cluster.put(&[
        ("members/1/mac", "02:00:00:00:01:01"),
        ("members/2/mac", "02:00:00:00:01:02"),
        ("members/3/mac", "02:00:00:00:01:03"),
        ("weights/voice", "1"),
    ]);
    let equal = cluster.another("the weights of etcd are in force", &of_file);
    let before = cluster.settles("weights of etcd", 0.5, 1_000);

    // What cannot be is named, and changes nothing.
    cluster.put(&[("weights/voice", "70000")]);
    eventually("the wrong value is named", || {
        let log = cluster.log("f2");
        log.contains("weights/voice = \"70000\"") && log.contains("1 to 65535")
    });
    assert_eq!(cluster.configurations(), [equal.as_str(); 3]);

    // etcd dies: after more than a lease, everything is as it was.
    let abstained =
        |cluster: &Cluster| cluster.show("f2")["cluster"]["abstained"].as_u64().unwrap();
    let abstained_before = abstained(&cluster);
    cluster.kill("ed");
    eventually("its death is told", || {
        cluster.log("f2").contains("the router goes on with what it has")
    });
    std::thread::sleep(Duration::from_millis(1_500));
    // How many packets there are is also a matter of what else the machine does.
    cluster.settles("without etcd", 0.5, before / 3);
    assert_eq!(cluster.configurations(), [equal.as_str(); 3]);
    println!("abstained: {abstained_before} before, {} after", abstained(&cluster));
    assert_eq!(cluster.show("lb")["balancer"]["moved"], 0);

    // It is back, on its data: the value is mended, and nobody was lost meanwhile.
    cluster.etcd();
    cluster.put(&[("weights/voice", "3")]);
    let back = cluster.another("the mended weights are in force", &equal);
    assert_eq!(back, of_file, "members and weights are those of the file again");
    cluster.settles("etcd is back", 0.75, 1_000);
    assert_eq!(cluster.show("lb")["balancer"]["moved"], 0, "no lease was held against anybody");

    // A forwarder dies: its lease tells the balancer.
    cluster.kill("f3");
    eventually("the balancer has it out", || {
        cluster.show("lb")["balancer"]["forwarders"][2]["state"] == "out"
    });
}
