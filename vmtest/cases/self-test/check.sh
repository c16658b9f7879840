exited check 0
# 5.10 follows no operations, and does not count skipped runs.
untested='[]'
[[ $(cat release) != 5.10.* ]] || untested='["generator-count","generator-time","misses","stage-sums"]'
expect check.json '.self_test | length == 11 and ([.[] | select(.state == "not_tested") | .name] | sort) == $untested' \
    untested "$untested"
expect check.json '.self_test | all(.state != "fail")'
[[ $(cat release) != 5.10.* ]] || exit 0
expect check.json '.self_test[] | select(.name == "generator-count") | .numbers | .made == .seen and .made > 1000'
expect check.json '.self_test[] | select(.name == "stage-sums") | .numbers | .stages_ns == .total_ns and .operations > 1000'
