//go:build !linux

package main

// spread is only of use on Linux.
func spreadFolders(string) {}
