// Package bench measures the gate on the local disk. make bench prints each figure
// with its target. Times are multiples of u, the cost of one durable write (write,
// fsync, rename, fsync of the folder) just before the row: the speed of machines
// differs, and that of one machine changes over time.
//
//	make bench BENCH=Burst
//	make bench BENCH_DIR=/mnt/disk    # measure another disk
//
// On ext4 without a journal (tune2fs -l: no has_journal) a new file costs more the more files were removed
// in the minutes before, because the kernel passes over their inodes one by one. Virtual machines have
// such disks; a file with a usual ext4 is a place to measure without that:
//
//	truncate -s 3G disk && mkfs.ext4 -q disk && sudo mount -o loop disk /mnt/disk
//
// The gate, its store, log and executor are the real ones, connected as in serve.
// Memory and idle processor time are those of the real daemon.
package bench
