#!/bin/sh
# Announces this balancer to the routers before it while it can give flows to some forwarder, and withdraws it otherwise: FRR redistributes the
# routes of the kernel (docs/cluster-operator.md). A blackhole, because nothing but the balancer is to forward to these networks from here.
# usage: cluster-announce.sh SOCKET NETWORK...
socket=$1
shift

announce() { for network; do ip route replace blackhole "$network"; done; }
withdraw() { for network; do ip route del blackhole "$network" 2>/dev/null; done; }

trap 'withdraw "$@"; exit 0' INT TERM
while :; do
  if "${EVENKEEL:-evenkeel}" cluster health --socket "$socket" >/dev/null 2>&1; then announce "$@"; else withdraw "$@"; fi
  sleep 0.1
done
