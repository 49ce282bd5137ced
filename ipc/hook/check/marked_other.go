//go:build !linux

package check

// killMarked has no way to find them here: the group was ended.
func killMarked(string) {}
