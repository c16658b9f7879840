for view in none deadline switched; do
    trusted "$view" nvme0n1
done
for name in mq-deadline none; do
    grep -qF "[$name]" seen || fail "the scheduler was never $name: $(cat seen)"
done
