grep -q '^[0-9]' release || fail "no kernel release"
