# Each I/O belongs to the group of its submitter: two processes in two cgroups v2. The block
# controller charges neither, since it is not enabled. Also filters by name and by cgroup.
. /guest/lib.sh

uname -r >release
upper=/sys/fs/cgroup/groups
mkdir "$upper" "$upper/lower"
gone() { rmdir "$upper/lower" "$upper"; }
trap 'no_layers; wait_for gone' EXIT
cat >load.sh <<EOF
(echo 0 >$upper/cgroup.procs; exec dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct) &
(echo 0 >$upper/lower/cgroup.procs; exec dd if=/dev/nvme0n1 of=/dev/null bs=16k count=200 iflag=direct) &
wait
EOF
traced groups nvme0n1 --by cgroup,process,size,op,cpu,queue,device -- sh load.sh
traced ring nvme0n1 --by process,size -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 2s --json -o load.json
traced named nvme0n1 --comm dd -- sh load.sh
traced below nvme0n1 --by process --cgroup groups/lower -- sh load.sh
traced nothing nvme0n1 --comm nobody -- sh load.sh

# The bios of an upper device belong to their submitters, and so do the requests below.
case $(cat release) in 5.10.*) exit 0 ;; esac
mapped linear linear nvme0n1 >name
upper_disk=$(cat name)
echo "dd if=/dev/$upper_disk of=/dev/null bs=4096 count=300 iflag=direct & dd if=/dev/$upper_disk of=/dev/null bs=8k count=100 iflag=direct; wait" >layer.sh
traced layer "$upper_disk" --by device,process,cpu -- sh layer.sh
traced layered-dd "$upper_disk" --by device,queue --comm dd -- sh layer.sh
traced layered "$upper_disk" --by device,queue --comm cat -- sh layer.sh

# Files of an ext4: direct reads, reads through the page cache, writes; and reads of the disk
# itself.
no_layers
mounted_ext4 nvme0n1 /tmp/mounted
for name in one two three; do dd if=/dev/zero of=/tmp/mounted/$name bs=64k count=16 conv=fsync; done
umount /tmp/mounted
mount -t ext4 /dev/nvme0n1 /tmp/mounted
cat >files.sh <<EOF
dd if=/tmp/mounted/one of=/dev/null bs=4096 count=200 iflag=direct
dd if=/tmp/mounted/two of=/dev/null bs=16k count=50 iflag=direct
dd if=/tmp/mounted/three of=/dev/null bs=64k
dd if=/dev/zero of=/tmp/mounted/four bs=64k count=16 conv=fsync
dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=100 iflag=direct
EOF
traced files nvme0n1 --by file,op -- sh files.sh
umount /tmp/mounted
