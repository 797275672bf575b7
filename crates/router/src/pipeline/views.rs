//! The counters as plain data.

use evenkeel_core::measure::Histogram;
use evenkeel_core::schedule::Scheduler;
use evenkeel_core::{Class, Nanos, Reason};
use evenkeel_ports::{Port, PortCounters};

use super::Pipeline;
use super::counters::{ByReason, named};
use super::port::PortSlot;
use crate::snapshot::{
    BufferSnapshot, ClassControl, ClassSnapshot, LinkSnapshot, PortCounts, PortSnapshot, Snapshot,
};

/// What a port lets fall on the way out; everything else it lets fall on the way in.
const OUTWARD: [Reason; 2] = [Reason::PortRefused, Reason::LinkDown];

impl Pipeline {
    /// Every counter, at `now`.
    pub fn snapshot<P: Port>(&self, now: Nanos, ports: &mut [P]) -> Snapshot {
        let services = self.services.view();
        Snapshot {
            time_ns: now.0,
            router: self.settings.name.clone(),
            uptime_ns: now.saturating_sub(self.started).0,
            seed: self.settings.seed,
            log_lost: 0,
            routes: self.routing.tables.len() as u64,
            neighbours: self.neighbours.len() as u64,
            refused_neighbours: self.routing.refused_neighbours(),
            translations: self.translations.len(),
            mirror_faults: self.routing.mirror_faults(),
            routing: self.routing.view(),
            buffers: BufferSnapshot {
                total: self.pool.buffers() as u64,
                free: self.pool.free() as u64,
                super_frames: self.pool.super_frames() as u64,
                lent: ports.iter().map(|port| port.lent() as u64).sum(),
            },
            ports: self
                .ports
                .iter()
                .zip(ports)
                .map(|(slot, port)| slot.view(&port.counters()))
                .collect(),
            links: self
                .ports
                .iter()
                .map(|slot| slot.link_view(now, &self.settings.class_names))
                .collect(),
            cycles: self.meter.view(&self.settings.class_names),
            fairdrop: self.fairdrop.as_ref().map(|fairdrop| {
                let services: Vec<_> =
                    services.iter().map(|service| service.name.clone()).collect();
                fairdrop.view(&self.settings.class_names, &services)
            }),
            services,
            cluster: self.cluster.as_ref().filter(|_| self.is_first()).map(|cluster| {
                let ports: Vec<_> = self.ports.iter().map(|slot| slot.name.clone()).collect();
                cluster.view(&ports, &self.settings.class_names)
            }),
            balancer: self.balancer.as_ref().map(|balancer| balancer.view()),
            removed: self.removed.clone(),
            workers: Vec::new(),
        }
    }
}

impl PortSlot {
    /// `device` is what the present device of the port has counted.
    pub(super) fn view(&self, device: &PortCounters) -> PortSnapshot {
        let count = &self.count;
        let mut all = self.before;
        all.add(device);
        let device = all;
        let mut dropped = count.dropped;
        let mut tx_dropped = count.tx_dropped;
        let mut fallen_in = 0;
        for reason in Reason::ALL {
            let fallen = device.dropped_for(*reason);
            if OUTWARD.contains(reason) {
                tx_dropped[reason.index()] += fallen;
            } else {
                dropped[reason.index()] += fallen;
                fallen_in += fallen;
            }
        }
        PortSnapshot {
            name: self.name.clone(),
            interface: self.interface.clone(),
            up: self.up,
            mac: self.mac.to_string(),
            mtu: self.mtu,
            counts: PortCounts {
                rx_packets: count.rx_packets + fallen_in,
                rx_segments: count.rx_segments + fallen_in,
                ..count.counts
            },
            tx_packets: device.tx_frames,
            tx_bytes: device.tx_bytes,
            tx_segments: device.tx_frames + device.tx_more,
            cut: device.cut + count.cut,
            originated_dropped: named(&count.originated_dropped),
            dropped: named(&dropped),
            ring_loss: device.ring_loss,
            tx_waiting: self.tx.len() as u64,
            tx_dropped: named(&tx_dropped),
            ..PortSnapshot::default()
        }
    }

    pub(super) fn link_view(&self, now: Nanos, class_names: &[String]) -> LinkSnapshot {
        let view = self.whole_link_view(now, class_names);
        if !self.is_others {
            return view;
        }
        // It has nothing to do: what it knows is not to be added to what the owner knows.
        LinkSnapshot { audit: None, admission: None, follow: None, tree: None, ..view }
    }

    fn whole_link_view(&self, now: Nanos, class_names: &[String]) -> LinkSnapshot {
        let link = &self.link;
        let held = link.held();
        let config = link.config();
        LinkSnapshot {
            port: self.name.clone(),
            discipline: link.scheduler().name().to_owned(),
            rate_bps: config.rate.map(|rate| rate.0),
            ring_slots: config.ring.slots,
            in_ring: held.in_ring,
            queued: held.queued,
            calls: link.qostat().calls,
            lost_ns: link.lost_time().0,
            audit: self.audit_view(class_names),
            admission: self.admission_view(),
            follow: self.follow_view(),
            tree: self.tree_view(),
            classes: class_names
                .iter()
                .enumerate()
                .map(|(index, name)| self.class_view(now, Class(index as u16), name))
                .collect(),
        }
    }

    fn class_view(&self, now: Nanos, class: Class, name: &str) -> ClassSnapshot {
        let meter = self.link.qostat().class(class);
        let dropped: &ByReason = &meter.dropped;
        ClassSnapshot {
            name: name.to_owned(),
            counts: meter.counts_at(now),
            dropped: named(dropped),
            queued_packets: meter.queue.packets,
            queued_bytes: meter.queue.bytes.0,
            queue_most: meter.queue.most,
            delay_sum_ns: meter.delay_sum.0,
            delay_max_ns: meter.delay_max.0,
            delay_buckets: meter
                .delay
                .buckets()
                .map(|(index, n)| (Histogram::bounds(index).0.0, n))
                .collect(),
            control: self.control.as_ref().and_then(|control| {
                let seen = control.seen().get(class.index())?;
                Some(ClassControl {
                    ci_delay: seen.index.delay.as_f64(),
                    ci_loss: seen.index.loss.as_f64(),
                    x_delay_ns: control.x_delay(class).0,
                    limit: control.limit(class),
                })
            }),
        }
    }
}
