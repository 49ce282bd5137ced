//go:build !unix

package wholefile

import "os"

// Lock does nothing: of two programs that write at once, one may lose what it has written.
func Lock(*os.File) error { return nil }

// TryLock never finds a file locked: each call is asked.
func TryLock(*os.File, bool) error { return nil }

// syncDir does nothing: a folder cannot be synced here.
func syncDir(string) error { return nil }
