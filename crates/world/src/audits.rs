//! What the audits of routers found, as rows of a result.

use evenkeel_cluster::audit;
use evenkeel_core::audit::Cause;
use evenkeel_core::drop::CyclesVerdict;
use evenkeel_report::AuditRow;
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{
    AuditSnapshot, ClusterAuditSnapshot, CyclesSnapshot, Drops, LinkSnapshot,
};

/// What is a core's name in a row.
const CORE: &str = "core";
/// And a cluster's.
const CLUSTER: &str = "cluster";

/// All that a router audits; its counters run from its start.
#[must_use]
pub fn of_router(snapshot: &Snapshot) -> Vec<AuditRow> {
    let links = snapshot.links.iter().filter_map(|link| Some((link, link.audit.as_ref()?)));
    let mut rows: Vec<_> = links.map(|(link, audit)| of_link(link, audit)).collect();
    let shared = snapshot.fairdrop.as_ref().filter(|fairdrop| fairdrop.on);
    rows.extend(shared.map(|fairdrop| of_cycles(&fairdrop.cycles)));
    let cluster = snapshot.cluster.as_ref();
    rows.extend(cluster.map(|cluster| of_cluster(&snapshot.router, &cluster.audit)));
    rows.into_iter().map(|row| AuditRow { router: snapshot.router.clone(), ..row }).collect()
}

/// What the audit of a core without a router around it has found.
#[must_use]
pub fn of_core(verdict: &CyclesVerdict) -> AuditRow {
    AuditRow {
        of: CORE.to_owned(),
        judged: verdict.overloaded as f64,
        unit: "s".to_owned(),
        violations: verdict.violations,
        nearest: (verdict.overloaded > 0).then(|| behind(verdict.worst_ppm.into())),
        last: verdict.last.map(|last| last.cause.describe().trim().to_owned()),
        ..AuditRow::default()
    }
}

/// What the audit of a cluster's engine without a router around it has found.
#[must_use]
pub fn of_engine(node: &str, verdict: &audit::Verdict) -> AuditRow {
    let causes = [(Cause::Discipline, verdict.violations)];
    let met = causes.iter().filter(|(_, times)| *times > 0);
    let audit = ClusterAuditSnapshot {
        windows: verdict.windows,
        violations: verdict.violations,
        by_cause: met.map(|(cause, times)| (cause.name().to_owned(), *times)).collect(),
        worst_ppm: verdict.worst_ppm,
        ..ClusterAuditSnapshot::default()
    };
    of_cluster(node, &audit)
}

fn of_link(link: &LinkSnapshot, audit: &AuditSnapshot) -> AuditRow {
    let parts = audit.promises().into_iter().map(|(promise, lag)| {
        let allowed = (lag.bound_bytes + lag.within_bytes).max(1);
        (promise, lag.worst_bytes as f64 / allowed as f64)
    });
    AuditRow {
        of: link.port.clone(),
        judged: audit.watched_ns as f64 / 1e9,
        unit: "s".to_owned(),
        violations: audit.violations,
        by_cause: pairs(&audit.by_cause),
        nearest: parts.max_by(|a, b| a.1.total_cmp(&b.1)),
        last: audit.last.as_ref().map(|last| last.words()),
        ..AuditRow::default()
    }
}

fn of_cycles(cycles: &CyclesSnapshot) -> AuditRow {
    AuditRow {
        of: CORE.to_owned(),
        judged: cycles.windows as f64,
        unit: "s".to_owned(),
        violations: cycles.violations,
        nearest: (cycles.windows > 0).then(|| behind(cycles.worst_ppm)),
        last: cycles.last.as_ref().map(|last| last.words()),
        ..AuditRow::default()
    }
}

/// How far a flow was behind, of the tenth that is allowed.
fn behind(ppm: u64) -> (String, f64) {
    ("cycles of flows".to_owned(), ppm as f64 / 1e5)
}

/// What a forwarder of a cluster has found.
#[must_use]
pub fn of_cluster(router: &str, audit: &ClusterAuditSnapshot) -> AuditRow {
    AuditRow {
        router: router.to_owned(),
        of: CLUSTER.to_owned(),
        judged: audit.windows as f64,
        unit: "windows".to_owned(),
        violations: audit.violations,
        by_cause: pairs(&audit.by_cause),
        nearest: (audit.windows > 0)
            .then(|| ("classes of links".to_owned(), audit.worst_ppm as f64 / 1e6)),
        last: (audit.violations > 0).then(|| audit.words()),
    }
}

fn pairs(drops: &Drops) -> Vec<(String, u64)> {
    drops.iter().map(|(cause, times)| (cause.clone(), *times)).collect()
}
