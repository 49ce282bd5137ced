//go:build !linux

package main

import "os/exec"

// endWithParent is for Linux: elsewhere a killed parent leaves its child behind.
func endWithParent(*exec.Cmd) {}
