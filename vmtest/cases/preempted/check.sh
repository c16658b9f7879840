accounted latency nullb0
accounted latency nullb1 "$(cat other.ios)"
