[ "$(cat ios)" -eq 777 ] || fail "777 reads, but the kernel counted $(cat ios)"
