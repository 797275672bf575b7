//! A tunnel that several workers encrypt for, on real packets: no sequence number and no IV twice,
//! whatever becomes of the workers meanwhile. Needs root; says so and passes otherwise.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use evenkeel_netns::testing::eventually;
use serde_json::Value;

use super::run::{CONFIG, Live, uncaptured};

/// The class `bulk` is encrypted, by so many workers. By address: fragments have no ports.
fn config(workers: usize) -> String {
    let service = format!(
        "[router]\nworkers = {workers}\n[[service]]\nname = \"vpn\"\nwork = {{ kind = \"esp\", \
         local = \"10.2.0.1\", remote = \"10.2.0.2\", spi = 256, key = \
         \"0xc0ffee11223344556677889900aabbccddeeff01\" }}\n"
    );
    let class = CONFIG.replace("name = \"bulk\"\n", "name = \"bulk\"\nservice = \"vpn\"\n");
    service + &class.replace("destination_port = 5002", "destination = \"10.2.0.2\"")
}

/// Sixteen flows at once, so that workers have some each, until there is a file `stop`.
const SENDS: &str = "for flow in $(seq 16); do (while [ ! -e \"$0/stop\" ]; do echo secret; \
                     sleep 0.01; done >/dev/udp/10.2.0.2/$((6000 + flow))) & done; wait";

#[test]
fn several_workers_have_one_sequence_of_a_tunnel_also_across_reloads() {
    let Some(mut live) = Live::prepared("tunnels", CONFIG, 1) else { return };
    let file = live.folder.path().join("router.toml");
    let write = |workers| {
        std::fs::write(&file, config(workers)).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    };
    write(2);
    live.router = uncaptured(&live.net, &live.folder).stdout(Stdio::null()).spawn().unwrap();
    live.wait_until_it_forwards();
    live.ping();
    let capture = live.folder.path().join("esp.pcap");
    let dump = format!("tcpdump -i b0 -B 16384 -U -w {} ip proto 50", capture.display());
    let _dump = live.net.start("b", &dump);
    eventually("the capture has begun", || capture.exists());
    let mut load = live.net.command("a", "timeout 60 bash -c");
    let mut load = load.arg(SENDS).arg(live.folder.path()).spawn().unwrap();
    let sealed = || live.show()["services"][0]["packets"].as_u64().unwrap();
    for (workers, packets) in [(1, 400), (3, 800), (2, 1_200)] {
        eventually("packets are sealed", || sealed() >= packets);
        write(workers);
        let said = live.ctl(&["reload", &file.display().to_string()]);
        assert!(said.status.success(), "{said:?}");
    }
    let of_workers = |worker: &Value| {
        worker["ports"][0]["rx_packets"].as_u64().is_some_and(|packets| packets > 100)
    };
    eventually("flows fall on both workers", || {
        live.show()["workers"].as_array().unwrap().iter().all(of_workers)
    });
    std::fs::write(live.folder.path().join("stop"), "").unwrap();
    assert!(load.wait().unwrap().success());
    let show = live.show();
    let service = &show["services"][0];
    assert_eq!(service["sequence"], service["packets"], "{service}");

    // On a machine that stalls a queue may drop what has been sealed, and says so.
    let wanted = service["packets"].as_u64().unwrap();
    let dropped = |bulk: &Value| -> u64 {
        bulk["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
    };
    eventually("what was sealed has left", || {
        let bulk = live.bulk_class();
        bulk["sent_packets"].as_u64().unwrap() + dropped(&bulk) == wanted
    });
    let seen = || {
        // After the file's and a record's head: Ethernet, IP, ESP.
        let file = std::fs::read(&capture).unwrap();
        let (mut rest, mut sequence, mut ivs) = (&file[24..], BTreeSet::new(), BTreeSet::new());
        let mut packets = 0;
        while rest.len() > 16 {
            let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
            if rest.len() < 16 + length {
                break;
            }
            let esp = &rest[16 + 14 + 20..16 + length];
            sequence.insert(u32::from_be_bytes(esp[4..8].try_into().unwrap()));
            ivs.insert(esp[8..16].to_vec());
            (rest, packets) = (&rest[16 + length..], packets + 1);
        }
        (packets, sequence.len(), ivs.len(), sequence.last().copied())
    };
    // The kernel's backlog behind the wire may drop some, and nobody says so.
    let sent = wanted - dropped(&live.bulk_class());
    eventually("nearly all have been seen", || seen().0 as u64 >= sent - sent / 20);
    let (packets, numbers, ivs, last) = seen();
    assert_eq!((numbers, ivs), (packets, packets), "each has its own");
    assert!(last.is_some_and(|last| u64::from(last) <= wanted), "{last:?} of {wanted}");
}
