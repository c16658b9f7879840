# Whether that is too much loss to trust depends on how slow the machine is; emulated, it can be.
[ "$(cat latency.exit)" -eq 0 ] || exited latency 4
device latency nullb0 '.ios + .lost_ios == $ios and kernel == [$ios, $ios]' ios "$(cat latency.ios)"
device latency nullb1 '.ios + .lost_ios == $ios and kernel == [$ios, $ios]' ios "$(cat other.ios)"
expect latency.json '.lost.ios == ([.devices[].lost_ios] | add)'
# Nothing else is lost than what was missed, and without preemption nothing is.
expect latency.json '.lost.ios <= .lost.probes.latency.missed'
case $(cat release) in
5.* | 6.*) expect latency.json '.lost.probes.latency.missed == 0' ;;
esac
