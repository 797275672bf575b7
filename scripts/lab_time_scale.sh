# Sourced. By what the times of a scenario are scaled on real packets: TIME_SCALE, but 0.5 for a scenario with a dynamic control. Its interval
# is scaled too; the queues that it steers keep their lengths, and at 0.3 one seed of ten misses an expectation, at 0.5 none of twenty.
lab_time_scale() {
  if is_controlled "$1"; then echo 0.5; else echo "${TIME_SCALE:-0.06}"; fi
}

is_controlled() { grep -q '^\[router\.config\.link\.control\]' "$1"; }
