package project

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maySync are the functions that make files durable, or hand on to one that does, and why
// the journal does not do it.
var maySync = map[string]string{
	// the journal
	"ipc/fs_linux.go Datasync":          "a group, and a segment at the start",
	"ipc/fs_other.go Datasync":          "the same",
	"ipc/journal/journal.go Begin":      "the header of a life",
	"ipc/journal/journal.go writeGroup": "a group of commits",
	"ipc/journal/open.go Open":          "after a kill, groups can be read that are not durable",
	"ipc/journal/open.go create":        "a segment is created once",
	"ipc/journal/open.go openFiles":     "its name",

	"ipc/version.go writeVersion": "the names of the segments, before the file that says that they exist",

	// checkpoints and starts: every file at once
	"ipc/fs.go Sync":            "implements OpenedFS",
	"ipc/fs.go SyncDir":         "implements FS",
	"ipc/fs_linux.go syncFS":    "syncfs",
	"ipc/fs_other.go syncFS":    "sync",
	"ipc/health.go syncAll":     "a checkpoint",
	"ipc/health.go saveFiles":   "a stop without a journal",
	"ipc/lease.go Lease":        "opens the file system for its checkpoints",
	"ipc/lease.go checkpoint":   "a checkpoint",
	"ipc/lease.go moveMark":     "a checkpoint",
	"ipc/lease.go recoverFrom":  "a start, after replay",
	"ipc/synceach.go syncFiles": "a checkpoint, where syncfs reports no errors",
	"ipc/synceach.go syncFile":  "the same",
	"ipc/backup.go Complete":    "a backup is not in the journal",
	"ipc/layout.go makeFolders": "a folder must exist before a commit puts a file there",

	// what other processes write, too, or replay must not undo
	"ipc/pause.go Resume":      "a pause that has ended must stay ended",
	"ipc/pause.go createEmpty": "a pause on a full disk",
	"ipc/health.go syncDir":    "save",
	"ipc/write.go save":        "revocations, keys, redeemed receipts, pauses; a decision without the lease; documents too large for the journal",
	"ipc/write.go put":         "the same",

	// outside of HOME
	"ipc/wholefile/wholefile.go Create":                    "of an agent's side: what a call has taken up, used or been given is not taken up again",
	"ipc/wholefile/wholefile.go Replace":                   "tokens, of which the issuer may have replaced the ones before; definitions that were seen approved; settings of a person",
	"ipc/wholefile/lock_unix.go syncDir":                   "both",
	"ipc/client/client.go put":                             "a client of an agent: its requests are not in HOME's journal",
	"security/keyfile/keyfile.go Create":                   "a key: without it nothing in the journal verifies",
	"security/receipt/keyfile.go LoadOrCreate":             "the same",
	"security/receipt/keyfile.go ensurePublic":             "the same",
	"security/receipt/rotate.go Rotate":                    "the same",
	"security/receipt/rotate.go prepareNext":               "the same",
	"security/seal/keyfile.go LoadOrCreate":                "the same",
	"cmd/permesso/internal/daemon/push.go load":            "the same",
	"security/audit/write.go createSynced":                 "an alarm, and lines that do not count: the journal goes on without them",
	"security/audit/alarm.go Raise":                        "the same",
	"security/audit/alarm.go raise":                        "the same",
	"cmd/permesso/internal/daemon/scripted.go writeMark":   "before the journal exists: no daemon with approvers may serve this HOME",
	"cmd/permesso/internal/setup/workspace.go createFile":  "the configuration, which is not in HOME",
	"cmd/permesso/internal/setup/workspace.go fill":        "the same",
	"cmd/permesso/internal/setup/workspace.go replaceFile": "the same",

	// measurements of doctor
	"ipc/disk.go JournalTime": "measures",
	"ipc/disk.go SyncTime":    "measures",

	// of the audit log, whose Sync waits for the journal and syncs no file
	"approval/gate/degrade.go examine":               "waits for the journal",
	"cmd/permesso/internal/daemon/audit.go runNotes": "waits for the journal",
	"cmd/permesso/internal/daemon/serve.go logStart": "waits for the journal",
	"security/audit/sign.go Checkpoint":              "waits for the journal",
}

// TestSyncs: durability has one place, the journal. Every function that syncs is listed with
// its reason.
func TestSyncs(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..")
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || isTestSupport(name) {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			addSyncs(found, name, f)
		}
		return err
	}))
	require.Equal(t, slices.Sorted(maps.Keys(maySync)), slices.Sorted(maps.Keys(found)))
	for function, why := range maySync {
		require.NotEmpty(t, why, function)
	}

	bites := map[string]bool{}
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc (x *T) save() { go func() { x.file.Sync() }() }\nfunc g() { f := unix.Fsync; f(1) }\nfunc h() { Datasync(f) }", 0)
	require.NoError(t, err)
	addSyncs(bites, "p/p.go", f)
	require.Equal(t, map[string]bool{"p/p.go save": true, "p/p.go g": true, "p/p.go h": true}, bites)
}

func isTestSupport(name string) bool {
	for _, dir := range []string{"ipc/crashfs/", "cmd/permesso/internal/crashtest/"} {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}

// addSyncs adds the functions of a file that use something with the name of a sync.
func addSyncs(found map[string]bool, file string, f *ast.File) {
	syncs := []string{"syncDir", "syncFS", "syncAll", "Sync", "SyncDir", "OpenFS", "Datasync", "Fsync", "Fdatasync", "Syncfs", "SyncFileRange", "O_SYNC", "O_DSYNC"}
	for _, d := range f.Decls {
		name := "var"
		if fn, ok := d.(*ast.FuncDecl); ok {
			name = fn.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			var used string
			switch x := n.(type) {
			case *ast.SelectorExpr:
				used = x.Sel.Name
			case *ast.CallExpr:
				if called, ok := x.Fun.(*ast.Ident); ok {
					used = called.Name
				}
			}
			if slices.Contains(syncs, used) {
				found[fmt.Sprintf("%s %s", file, name)] = true
			}
			return true
		})
	}
}
