missed=$(jq '.lost.probes.interrupts.missed' threaded.json)
case $(cat release) in
5.* | 6.*) [ "$missed" -eq 0 ] || fail "$missed runs were missed" ;;
esac
[ "$(cat threaded.exit)" -eq 0 ] || [ "$missed" -gt 0 ] || exited threaded 0
device threaded nvme0n1 '(.ios - $ios | fabs) <= $missed and .completed.interrupt == 0 and .completed.task > .ios / 2' \
    ios "$(cat threaded.ios)" missed "$missed"
# A queue's first interrupt tells which thread handles it.
expect threaded.json '[.vectors[] | select(.queue != null and .interrupts > 0)] | length > 0
    and all(.threaded == .interrupts) and all(.interrupts <= .kernel_interrupts_max)
    and all(.completions_per_interrupt.sum == .completions and .completions > 0)
    and all((.by_cpu | map(.cpu)) - .cpus == [])'
expect threaded.json '([.vectors[] | select(.queue != null) | .completions] | add) + .devices[0].reaped_elsewhere
    >= .devices[0].ios - $missed' missed "$missed"
