# Defines the emulated machine. Sourced by the scripts that boot one.
# shellcheck shell=bash

kernels=${XDG_CACHE_HOME:-$HOME/.cache}/biopsy/kernels
guest_pid=

# The QEMU that setup/qemu fetched, or the installed one.
emulator=(qemu-system-x86_64)
fetched=${kernels%/*}/qemu/usr
if [ -x "$fetched/bin/qemu-system-x86_64" ]; then
    emulator=("$fetched/bin/qemu-system-x86_64" -L "$fetched/share/seabios" -L "$fetched/share/qemu")
fi

emulator_major() {
    "${emulator[@]}" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p'
}

# Emulation, since stock kernels do not boot on every machine's /dev/kvm. With a thread per CPU, old QEMU breaks half
# of the runs (see setup/qemu), and with one thread for all CPUs one in twenty. QEMU 10 with 80 threads breaks one in
# five, with one thread none.
accelerator() { # CPUS
    if [ "$(emulator_major)" -ge 10 ] && [ "$1" -le 16 ]; then echo tcg,thread=multi; else echo tcg,thread=single; fi
}

# Options of a drive that fails some reads and delays others, for `drive=faulty`. From 64 MiB on, the first read of
# every tenth block of 4 KiB fails, for 20 blocks; for every second of them the next read fails too: 30 errors. After a
# read of 384 KiB, the next one waits for 3 s.
faulty_drive() { # IMAGE
    local n rule=0 options="throttling.bps-read=131072,file.driver=blkdebug,file.image.driver=file"
    for n in $(seq 0 19) $(seq 0 2 18); do
        options+=",file.inject-error.$rule.event=none,file.inject-error.$rule.iotype=read"
        options+=",file.inject-error.$rule.once=on,file.inject-error.$rule.sector=$((131072 + n * 80))"
        rule=$((rule + 1))
    done
    echo "$options,file.image.filename=$1"
}

# start_guest KERNEL INITRAMFS FOLDER SMP LIMIT APPEND: boots in the background, for at most LIMIT seconds. FOLDER gets
# `console` (the kernel's), `terminal` (the guest's second serial port), `results.tar` (the archives of the cases,
# concatenated) and `qemu` (QEMU's messages).
start_guest() {
    local kernel=$1 initramfs=$2 folder=$3 smp=$4 limit=$5 append=$6
    local image drive drives nodes clock backend more queues number processor budget memory
    # In /boot, or for 7.x and later in the folder of the modules.
    image=$(find "$kernels/$kernel" -maxdepth 5 -name 'vmlinuz*' -type f | head -n1)
    # Random data: no layer can answer a read without the drive.
    head -c 128M /dev/urandom >"$folder/drive.img"
    : >"$folder/terminal"
    drive=(-device 'nvme,serial=biopsy0,drive=drive,max_ioqpairs=4')
    backend=file=$folder/drive.img
    if [[ $append == *drive=faulty* ]]; then
        backend=$(faulty_drive "$folder/drive.img")
    fi
    # For `iops=600`: the host limits the drive to this many I/Os per second.
    if [[ $append =~ (^|\ )iops=([0-9]+) ]]; then
        backend=throttling.iops-total=${BASH_REMATCH[2]},$backend
    fi
    # A drive in a subsystem reports that it may have several paths; the kernel then creates a multipath head.
    if [[ $append == *nvme_core.multipath=Y* ]]; then
        drive=(-device 'nvme-subsys,id=subsystem'
            -device 'nvme,serial=biopsy0,subsys=subsystem,max_ioqpairs=4'
            -device 'nvme-ns,drive=drive,shared=on')
    fi
    # Two nodes, each with half of the CPUs and the memory. The drive is behind a bridge of the second.
    nodes=()
    if [[ $append == *nodes=2* ]]; then
        nodes=(-object 'memory-backend-ram,id=first,size=768M' -object 'memory-backend-ram,id=second,size=768M'
            -numa "node,nodeid=0,cpus=0-$((smp / 2 - 1)),memdev=first"
            -numa "node,nodeid=1,cpus=$((smp / 2))-$((smp - 1)),memdev=second"
            -device 'pxb,id=far,bus=pci.0,bus_nr=128,numa_node=1')
        drive=(-device 'nvme,serial=biopsy0,drive=drive,max_ioqpairs=4,bus=far')
    fi
    # For `queues=1,3`: several drives with these numbers of queues. They read as zeroes and need no file.
    more=()
    if [[ $append =~ queues=([0-9,]+) ]]; then
        number=0
        for queues in ${BASH_REMATCH[1]//,/ }; do
            number=$((number + 1))
            more+=(-drive "if=none,id=more$number,format=raw,file.driver=null-co,file.size=128M,file.read-zeroes=on"
                -device "nvme,serial=queues$number,drive=more$number,max_ioqpairs=$queues")
        done
    fi
    # For `budget=shared`: four drives below one root complex, with 40 MB/s each; the first two share the 40 MB/s of
    # one.
    if [[ $append == *budget=shared* ]]; then
        for number in 1 2 3 4; do
            budget=throttling.bps-total=40000000
            [ "$number" -gt 2 ] || budget+=,throttling.group=shared
            more+=(-drive "if=none,id=more$number,format=raw,file.driver=null-co,file.size=128M,file.read-zeroes=on,$budget"
                -device "nvme,serial=budget$number,drive=more$number,max_ioqpairs=4")
        done
    fi
    # For `memory=512`: this much memory in MiB.
    memory=1536
    if [[ $append =~ (^|\ )memory=([0-9]+) ]]; then
        memory=${BASH_REMATCH[2]}
    fi
    clock=(-accel "${BIOPSY_VM_ACCEL:-$(accelerator "$smp")}")
    drives=(-drive "if=none,id=drive,format=raw,$backend" "${drive[@]}")
    # Without the features that slow down the emulator most. With erms and fsrm the kernel clears and copies pages by
    # `rep stosb` and `rep movsb`, a quarter of the guest's CPU time. la57 adds a level of page tables. A boot of three
    # cases took 81 s; 62 s without the first two; 45 s without all five.
    processor=max,-erms,-fsrm,-la57,-smap,-pku
    # Without the hypervisor bit, spinlocks queue as on hardware. With it, a guest uses test-and-set, which has no
    # event. PCIe links count as those of hardware, too.
    if [[ $append == *bare=Y* ]]; then
        processor+=,-hypervisor
    fi
    # For cases that compare times with known ones. An instruction takes 2 ns, and an idle CPU jumps to its next timer,
    # so the figures do not depend on the host. No drive: its time would depend on the host's disk. QEMU supports this
    # mode with one thread for all CPUs only.
    if [[ $append == *time=virtual* ]]; then
        clock=(-accel 'tcg,thread=single' -icount 'shift=1,sleep=off')
        drives=()
    fi
    # A panic or an oops ends the guest (panic=-1 with -no-reboot), a hang ends at the time limit.
    timeout -k 5 "$limit" "${emulator[@]}" -nodefaults -no-user-config -display none -no-reboot \
        "${clock[@]}" -cpu "$processor" -smp "$smp" -m "$memory" \
        -kernel "$image" -initrd "$initramfs" \
        -append "console=ttyS0 loglevel=5 oops=panic panic=-1 rdinit=/init $append" \
        -serial "file:$folder/console" -serial "file:$folder/terminal" \
        -device virtio-serial-pci -chardev "file,id=results,path=$folder/results.tar" \
        -device virtserialport,chardev=results,nr=1 \
        "${nodes[@]}" "${drives[@]}" "${more[@]}" \
        >"$folder/qemu" 2>&1 &
    guest_pid=$!
}

# Whether the guest's kernel never reached its init.
stillborn() { # FOLDER
    ! grep -aq 'biopsy-vm: init' "$1/console" 2>/dev/null
}

# Whether the emulator lost a timer interrupt of the guest: the kernel reports an idle CPU whose timer should have
# expired 20 s ago. Before Linux 5.12 (683954e55c98) it only reports that RCU's thread is late, with its state: asleep
# (0x402) means that it waits for that timer; a thread without CPU time would be runnable.
timer_lost() { # FOLDER
    local late="kthread timer wakeup didn't happen"
    local asleep='kthread starved for [0-9]+ jiffies! .* RCU_GP_WAIT_FQS\(5\) ->state=0x402 '
    grep -aqE "$late|$asleep" "$1/console" 2>/dev/null
}

# Whether the emulated drive did not come back from a reset by its driver, so that the kernel removed it: the log has
# nvme_remove_dead_ctrl (5.10, 6.1) or nvme_reset_work (newer).
drive_lost() { # FOLDER
    grep -aqE 'nvme0: (Removing after probe failure|Disabling device after reset failure)' "$1/console" 2>/dev/null
}

# Waits for the guest's end, and unpacks the results of its cases. A kernel reaches its init in 4 to 40 s: it stops
# waiting after 180 s, or if the guest's CPUs no longer wake up.
wait_guest() { # FOLDER
    local began=$SECONDS
    while kill -0 "$guest_pid" 2>/dev/null; do
        if { [ $((SECONDS - began)) -ge 180 ] && stillborn "$1"; } || timer_lost "$1"; then
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

# Ends a running guest; for traps.
kill_guest() {
    [ -n "$guest_pid" ] || return 0
    kill "$guest_pid" 2>/dev/null || true
    wait "$guest_pid" 2>/dev/null || true
    guest_pid=
}
