# Drives below one root complex: two that share the emulator's bandwidth limit, and two that do not.
# append: budget=shared bare=Y
. /guest/lib.sh

# Newer kernels probe drives in parallel, so their names vary.
for serial in 1 2 3 4; do
    for folder in /sys/class/nvme/nvme*; do
        [ "$(tr -d ' ' <"$folder/serial")" != "budget$serial" ] || basename "$folder"n1
    done
done >drives
compare() { # NAME TARGET BESIDE
    status=0
    biopsy diagnose "/dev/$2" --beside "/dev/$3" --bs 64k --iodepth 4 --runtime 10s --max-loss 100 --json -o "$1.html" \
        >"$1.json" 2>"$1.err" || status=$?
    echo "$status" >"$1.exit"
}
# shellcheck disable=SC2046 # two words
compare shared $(sed -n 1,2p drives)
# shellcheck disable=SC2046 # two words
compare own $(sed -n 3,4p drives)
