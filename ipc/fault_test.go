package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/store"
)

func TestExplain(t *testing.T) {
	for class, want := range map[error]string{
		syscall.ENOSPC: "nothing was decided: no space left on the disk of HOME",
		syscall.EDQUOT: "nothing was decided: the disk quota of the daemon's user is used up",
		syscall.EROFS:  "nothing was decided: HOME is on a read-only file system",
		syscall.EIO:    "write x: write /home/x: input/output error",
	} {
		err := explain("nothing was decided", fmt.Errorf("write x: %w", &fs.PathError{Op: "write", Path: "/home/x", Err: class}))
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, class)
	}
	require.NoError(t, explain("x", nil))
	unknown := errors.Join(store.ErrRestart, syscall.ENOSPC)
	require.Equal(t, unknown, explain("nothing was decided", unknown), "it may have been written")
}
