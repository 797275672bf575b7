# Sourced. By what the times of a scenario are scaled on real packets: TIME_SCALE, but 0.5 for a scenario with a dynamic control. Its interval
# is scaled too; the queues that it steers keep their lengths, and at 0.3 one seed of ten misses an expectation, at 0.5 none of twenty.
# Those of the cross-protect router are short as they are: the intervals of its admission do not scale. Nor do the times that FairDrop takes, and the cycles of a
# live cluster.
lab_time_scale() {
  if [[ $1 == *cross-protect-lab/* || $1 == *fairdrop/lab-* || $1 == *stsdr/* || $1 == *baselines/* ]]; then echo 1; elif is_controlled "$1"; then echo 0.5; else echo "${TIME_SCALE:-0.06}"; fi
}

is_controlled() { grep -q '^\[router\.config\.link\.control\]' "$1"; }

# Whose counter-runs would take too long on real packets.
counter_runs_are_simulated() { is_controlled "$1" || [[ $1 == */cross-protect-lab/@(waits|burst).toml || $1 == */fig5-af-xdp.toml ]]; }
