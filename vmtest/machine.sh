# The emulated machine: sourced by the scripts that boot one.
# shellcheck shell=bash

kernels=${XDG_CACHE_HOME:-$HOME/.cache}/biopsy/kernels
guest_pid=

# The QEMU that setup/qemu fetched, else the installed one.
emulator=(qemu-system-x86_64)
fetched=${kernels%/*}/qemu/usr
if [ -x "$fetched/bin/qemu-system-x86_64" ]; then
    emulator=("$fetched/bin/qemu-system-x86_64" -L "$fetched/share/seabios" -L "$fetched/share/qemu")
fi

emulator_major() {
    "${emulator[@]}" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p'
}

# Emulation, because stock kernels do not start on every machine's /dev/kvm. With a thread per CPU, old
# QEMU breaks half of the runs (setup/qemu says how), with one for all CPUs still one in twenty.
# QEMU 10 with 80 threads breaks one in five, with one thread none.
accelerator() { # CPUS
    if [ "$(emulator_major)" -ge 10 ] && [ "$1" -le 16 ]; then echo tcg,thread=multi; else echo tcg,thread=single; fi
}

# start_guest KERNEL INITRAMFS FOLDER SMP LIMIT APPEND: boots in the background, for LIMIT seconds at most.
# Into FOLDER go `console` (the kernel's), `terminal` (the guest's second serial line),
# `results.tar` (one archive per case, one behind the other) and `qemu` (its complaints).
start_guest() {
    local kernel=$1 initramfs=$2 folder=$3 smp=$4 limit=$5 append=$6 image drive
    # In /boot, or since 7.x among the modules.
    image=$(find "$kernels/$kernel" -maxdepth 5 -name 'vmlinuz*' -type f | head -n1)
    # Random, so that no layer can answer a read without the drive.
    head -c 128M /dev/urandom >"$folder/drive.img"
    : >"$folder/terminal"
    drive=(-device 'nvme,serial=biopsy0,drive=drive,max_ioqpairs=4')
    # A drive of a subsystem says that it may have several paths; the kernel then puts a head above it.
    if [[ $append == *nvme_core.multipath=Y* ]]; then
        drive=(-device 'nvme-subsys,id=subsystem'
            -device 'nvme,serial=biopsy0,subsys=subsystem,max_ioqpairs=4'
            -device 'nvme-ns,drive=drive,shared=on')
    fi
    # A panic or an oops ends the guest (panic=-1 with -no-reboot), a hang the time limit.
    timeout -k 5 "$limit" "${emulator[@]}" -nodefaults -no-user-config -display none -no-reboot \
        -accel "${BIOPSY_VM_ACCEL:-$(accelerator "$smp")}" -cpu max -smp "$smp" -m 1536 \
        -kernel "$image" -initrd "$initramfs" \
        -append "console=ttyS0 loglevel=5 oops=panic panic=-1 rdinit=/init $append" \
        -serial "file:$folder/console" -serial "file:$folder/terminal" \
        -device virtio-serial-pci -chardev "file,id=results,path=$folder/results.tar" \
        -device virtserialport,chardev=results,nr=1 \
        -drive "if=none,id=drive,format=raw,file=$folder/drive.img" \
        "${drive[@]}" \
        >"$folder/qemu" 2>&1 &
    guest_pid=$!
}

# Whether the guest's kernel never came as far as its init.
stillborn() { # FOLDER
    ! grep -aq 'biopsy-vm: init' "$1/console" 2>/dev/null
}

# Whether the emulator lost a timer interrupt of the guest: the kernel finds a CPU idle whose timer should
# have gone off 20 s ago.
timer_lost() { # FOLDER
    grep -aq "kthread timer wakeup didn't happen" "$1/console" 2>/dev/null
}

# Waits for the guest's end and unpacks what its cases left. A kernel takes 4 to 20 s to its init; one that
# has not come there after 90 is not waited for, nor is one whose CPUs do not wake any more.
wait_guest() { # FOLDER
    local began=$SECONDS
    while kill -0 "$guest_pid" 2>/dev/null; do
        if { [ $((SECONDS - began)) -ge 90 ] && stillborn "$1"; } || timer_lost "$1"; then
            kill "$guest_pid" 2>/dev/null || true
            break
        fi
        sleep 0.1
    done
    wait "$guest_pid" || true
    guest_pid=
    tar -x -i -f "$1/results.tar" -C "$1" 2>/dev/null || true
    rm -f "$1/drive.img" "$1/results.tar"
}

# Ends a guest that still runs; for traps.
kill_guest() {
    [ -n "$guest_pid" ] || return 0
    kill "$guest_pid" 2>/dev/null || true
    wait "$guest_pid" 2>/dev/null || true
    guest_pid=
}
