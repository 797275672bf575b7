# Sourced. By what the times of a scenario are scaled on real packets: TIME_SCALE, but 1 for a scenario with a dynamic control,
# whose law works in seconds and not in steps.
lab_time_scale() {
  if grep -q '^\[router\.config\.link\.control\]' "$1"; then echo 1; else echo "${TIME_SCALE:-0.06}"; fi
}
