// Package bench measures the gate on the local disk. make bench prints each figure
// with its target. Times are multiples of u, the cost of one durable write (write,
// fsync, rename, fsync of the folder) just before the row: the speed of machines
// differs, and that of one machine changes over time.
//
//	make bench BENCH=Burst
//	make bench BENCH_DIR=/mnt/disk    # measure another disk
//
// The gate, its store, log and executor are the real ones, connected as in serve.
// Memory and idle processor time are those of the real daemon.
package bench
