//go:build !linux

package watcher

// remoteFileSystem knows only the file systems of Linux.
func remoteFileSystem(string) string { return "" }
