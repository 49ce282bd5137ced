//go:build !race

package evaluate

// more is the address space that an evaluation can have besides what the process has at its start, of which the
// heap is 64 MiB.
const more = 160 << 20
