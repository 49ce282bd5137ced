package crashfs

import "fmt"

// Kind is the kind of an operation.
type Kind uint8

// The mutating kinds come first. The others, from OpOpen on, change nothing that outlives
// a process and are announced to BeforeRead.
const (
	OpCreate    Kind = iota // a new, empty file
	OpWrite                 // Write, WriteAt, WriteString
	OpOverwrite             // WriteAt within the length: it needs no space
	OpTruncate              // Truncate, and opening with O_TRUNC
	OpSync                  // fsync of a file
	OpSyncDir               // fsync of a folder
	OpSyncFS                // syncfs
	OpRename                // Rename and RenameNoReplace
	OpRemove                // Remove, and each removal of RemoveAll
	OpMkdir                 // Mkdir, and each new folder of MkdirAll
	OpOpen                  // opening an existing file
	OpRead                  // Read, ReadAt
	OpStat                  // Stat, LstatIfPossible
	OpReadDir               // Readdir, Readdirnames
	OpLock                  // taking a lock
	OpChmod                 // Chmod; only Fail is called, because it is durable at once
	opKinds
)

// Mutates reports whether the kind can change the disk.
func (k Kind) Mutates() bool { return k < OpOpen }

// String returns the kind in lower case.
func (k Kind) String() string {
	names := [...]string{
		"create", "write", "overwrite", "truncate", "sync", "syncdir", "syncfs", "rename", "remove", "mkdir",
		"open", "read", "stat", "readdir", "lock", "chmod",
	}
	if int(k) >= len(names) {
		return fmt.Sprintf("kind(%d)", k)
	}
	return names[k]
}

// Op describes an operation that is about to begin. It may still fail.
type Op struct {
	Proc string // name of the process
	Kind Kind
	Path string // as given by the process; of a rename, the new name
	From string // of a rename, the old name
	N    int    // mutating operations announced on this disk so far, this one included
}

// String returns the operation as one line for a report.
func (o Op) String() string {
	if o.From != "" {
		return fmt.Sprintf("#%d %s: %s %s -> %s", o.N, o.Proc, o.Kind, o.From, o.Path)
	}
	return fmt.Sprintf("#%d %s: %s %s", o.N, o.Proc, o.Kind, o.Path)
}
