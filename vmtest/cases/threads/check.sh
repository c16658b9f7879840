disk=$(cat name)
for view in threads sleeper files; do
    exited "$view" 0
    expect "$view.json" '.schema == "biopsy.threads/1" and .lost.samples == 0 and .rounds > 0'
done
# Each reader waits for the disk nearly all of the time, and no other thread submitted its bio.
place=$(grep -v '^0$' wchan | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
sleeps=$(cat place)
case $(cat release) in
5.10.*)
    # On 5.10 /proc/PID/wchan is 0: until 5.16 the kernel's unwinder for it supported frame pointers only.
    place=$(jq -r '[.threads[] | select(.comm == "dd" and .state == "D")] | max_by(.samples).wchan' threads.json)
    case $place in
    *blk* | submit_bio_wait) ;;
    *) fail "readers wait in $place" ;;
    esac
    sleeps=hrtimer_nanosleep
    ;;
esac
[ -n "$place" ] || fail "the kernel itself tells no place"
expect threads.json '.source == "bpf" and (.rounds + .missed_rounds | . >= 48 and . <= 50)'
expect threads.json '[.threads[] | select(.device == $disk)] == .threads and (.threads | length > 0)' disk "\"$disk\""
expect threads.json '[.threads[] | select(.comm == "dd" and .state == "D" and .syscall == "read" and .wchan == $place)
    | .average_threads] | add | . >= 2.7 and . <= 3' place "\"$place\""
expect threads.json '.states.io_wait.average_threads | . >= 2.7 and . <= 3'
expect threads.json '[.io_waits[] | .devices[$disk] == .samples] | length > 0 and all' disk "\"$disk\""
expect threads.json '.lost.probes.threads.no_stack == 0 and ([.threads[].stack | length] | min > 5)'
# Kernels with loops over tasks use them.
case $(cat release) in
5.10.* | 6.1.*) program=sample_thread ;;
*) program=sample_threads ;;
esac
expect threads.json 'any(.cost.programs[]; .name == $program and .runs > 0)' program "\"$program\""
expect check.json 'any(.views[]; .name == "threads" and .state == "ok")'

case $(cat number) in
35) call=nanosleep ;;
230) call=clock_nanosleep ;;
*) fail "the sleeper is in system call $(cat number)" ;;
esac
expect sleeper.json '(.threads | length == 1) and (.threads[0] | .comm == "sleep" and .state == "S" and .syscall == $call
    and .wchan == $place and .average_threads == 1)' call "\"$call\"" place "\"$sleeps\""
expect files.json '.source == "proc" and (.threads | length == 1)
    and (.threads[0] | .comm == "sleep" and .state == "S" and .stack == [] and .average_threads == 1)'
expect files.json '[.missing[].part] | contains(["kstack", "on_cpu", "in_iowait", "device"])'
