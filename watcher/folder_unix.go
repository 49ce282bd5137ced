//go:build unix

package watcher

import "syscall"

// onlyFolder are the flags that open a folder, and nothing that a name could be replaced by.
const onlyFolder = syscall.O_NOFOLLOW | syscall.O_DIRECTORY
