exited blocked 0
grep -q '^test result: ok. 3 passed; 0 failed' out || fail "not all ran: $(tail -n 3 out)"
# No test was skipped for something that the guest has.
! grep '^skipped\|\.\.\. skipped' out || fail "a test was skipped"
grep -q '^waiting for the disk: ' out || fail "the disk was not waited for"
