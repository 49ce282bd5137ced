//go:build !linux

package bench

// spreadFolders has an effect only on Linux.
func spreadFolders(string) {}
