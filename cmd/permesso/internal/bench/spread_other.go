//go:build !linux

package main

// spreadFolders has an effect only on Linux.
func spreadFolders(string) {}
