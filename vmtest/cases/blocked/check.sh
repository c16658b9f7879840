exited blocked 0
grep -q '^test result: ok. 3 passed; 0 failed' out || fail "not all ran: $(tail -n 3 out)"
# None left out what it is for.
! grep '^skipped\|\.\.\. skipped' out || fail "a test was skipped"
grep -q '^waiting for the disk: ' out || fail "the disk was not waited for"
